"""Know the DDP models, and keep a process group alive for as long as the reducer of one is.

Torch keeps no list of them. A wait in C++ within a backward may be a reducer's where there is a
model. And up to torch 2.14 the destructor of a reducer that is the last owner of a gloo group
destroys the group with the GIL held, and joins threads that may wait for the GIL: such a process
hangs for good. A reference that is dropped just after the reducer has gone makes Python the last
owner, which destroys a group without the GIL.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
import torch.distributed as dist

#: The first version whose reducers end well.
MENDED = "2.15"

#: The models that are there.
_living: weakref.WeakSet[Any] = weakref.WeakSet()


def install() -> None:
    """Record models by their reducers, and make those keep their groups where this torch needs
    it."""
    original: Any = dist.Reducer
    if torch.__version__ < MENDED:  # compares as versions do
        original = keeping_groups(original)
    dist.Reducer = noting(original)  # type: ignore[misc]


def models() -> list[Any]:
    """Return the DDP models of this rank."""
    return list(_living)


def noting(original: Any) -> Any:
    """Return a function that makes reducers as ``original`` does, and notes the model that asks."""

    def make_noted(*args: Any, **named: Any) -> Any:
        reducer = original(*args, **named)
        model = sys._getframe(1).f_locals.get("self")
        if isinstance(model, torch.nn.Module):
            _living.add(model)
        return reducer

    return make_noted


def keeping_groups(original: Any) -> Any:
    """Return a function that makes reducers as ``original`` does; each keeps its group."""

    def make_reducer(*args: Any, **named: Any) -> Any:
        reducer = original(*args, **named)
        groups = [g for g in (*args, *named.values()) if isinstance(g, dist.ProcessGroup)]
        weakref.finalize(reducer, groups.clear).atexit = False
        return reducer

    return make_reducer
