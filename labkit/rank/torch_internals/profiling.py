"""What of torch's profiler and of autograd has no public way in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Whether a profiler runs; without it nobody can tell.
RUNNING = "_profiler_enabled"
#: What autograd runs for a backward, in the namespace where everybody looks it up.
BACKWARDS = ("backward", "grad")


def is_recording() -> bool:
    """Return whether a profiler of torch runs in this thread."""
    running = getattr(torch.autograd, RUNNING, None)
    return running is not None and bool(running())


def wrap_backwards(
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> dict[str, Callable[..., Any]]:
    """Replace what autograd runs for a backward by ``wrap(it)``. Returns what was there."""
    before = {name: getattr(torch.autograd, name, None) for name in BACKWARDS}
    found = {name: function for name, function in before.items() if function is not None}
    for name, function in found.items():
        setattr(torch.autograd, name, wrap(function))
    return found
