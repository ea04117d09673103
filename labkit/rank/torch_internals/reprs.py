"""Show tensors without their device where that is the rank's own, as torch does on the CPU.

Torch writes ``tensor([1.], device='cuda:2')``: ranks with equal values would have a text each,
and a cell another output with every number of GPUs. The text alone is changed, where torch puts it
together, so that its lines are as long as on the CPU; where tensors are made, torch's default
device, stays as it is. A tensor elsewhere, as on another rank's GPU, still says where.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch
from torch import _tensor_str

from . import names

#: Modules that list tensors by size and device.
LISTS = (torch.nn.ParameterList, torch.nn.ParameterDict)

_original: Callable[..., str] | None = None
_own = torch.device("cpu")


def install(own: torch.device) -> None:
    """Leave ``own`` out of the texts of tensors from now on; the CPU never is in them."""
    global _own, _original
    _own = own
    if own.type == "cpu" or _original or not names.is_on("reprs"):
        return
    _original = _tensor_str._add_suffixes
    _tensor_str._add_suffixes = _add_others  # type: ignore[assignment]
    for module in LISTS:
        module.extra_repr = _without_own(module.extra_repr)  # type: ignore[method-assign]


def _add_others(text: str, suffixes: Iterable[str], *given: Any, **named: Any) -> str:
    """Put a tensor's text together from its values and what follows them."""
    assert _original is not None
    own = f"device='{_own}'"
    return _original(text, [suffix for suffix in suffixes if suffix != own], *given, **named)


def _without_own(extra_repr: Callable[..., str]) -> Callable[..., str]:
    """Make ``torch.cuda.FloatTensor of size 3 (cuda:0)`` be a ``torch.FloatTensor of size 3``."""

    @wraps(extra_repr)
    def show(module: torch.nn.Module) -> str:
        line = rf"(?m)( containing: \[torch\.)(?:{_own.type}\.)?(.*) \({_own}\)\]$"
        return re.sub(line, r"\1\2]", extra_repr(module))

    return show
