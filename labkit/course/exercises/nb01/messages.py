"""What the trials of messages share: numbers that tell who sent them, and ranks that come late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...exercise import Here

#: How much later than its neighbours a slow rank comes, in seconds.
LATE_SECONDS = 0.15


def come_late(here: Here) -> None:
    """Let odd ranks come late to each of their messages: an answer that does not wait is then
    found out on the other rank, every time."""
    here.be_late(LATE_SECONDS * (here.rank % 2))


def listed(value: Any) -> Any:
    """Return a tensor as a list, and anything else as it is."""
    return value.tolist() if isinstance(value, torch.Tensor) else value


def everywhere(yours: Sequence[Any], test: Callable[[int, Any], bool]) -> bool:
    """Tell whether a test of rank and value holds on all ranks."""
    return all(test(r, v) for r, v in enumerate(yours))


def numbers_of(rank: int) -> list[float]:
    """Return the numbers that a rank brings to a trial."""
    return [rank + 1.0, 10.0 * (rank + 1)]
