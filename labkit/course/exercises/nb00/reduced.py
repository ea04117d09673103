"""Recognise what ranks hold after a reduce, which gives its result to one rank only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...mistakes import near


def left_by_reduce(yours: Sequence[Any], brought: Sequence[torch.Tensor]) -> bool:
    """Return whether some ranks have the sum of what all brought, and others what ``dist.reduce``
    leaves there.

    The documentation promises nothing on those: NCCL leaves what the rank brought, gloo the sum of
    that and of what all higher ranks brought, and the result on rank 0 too.
    """
    total = torch.stack(list(brought)).sum(0)
    has_it = [near(_tensor(mine), total) for mine in yours]
    left = [
        near(_tensor(mine), own) or near(_tensor(mine), torch.stack(list(brought[rank:])).sum(0))
        for rank, (mine, own) in enumerate(zip(yours, brought, strict=True))
    ]
    return any(has_it) and not all(has_it) and all(map(max, has_it, left))


def _tensor(value: Any) -> torch.Tensor:
    return torch.as_tensor(value).to(torch.float32)
