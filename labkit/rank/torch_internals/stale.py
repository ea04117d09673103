"""Make torch forget a group that is gone, where it would name it in later calls.

Some of torch's modules (``torch.distributed.nn.functional`` is one) take ``group.WORLD`` as the
default of an argument: the default group of the moment in which they are imported. After a repair
that is another one, and a call of theirs would fail: "Process group … is not initialized".

What an operation on DTensors gives is remembered with the mesh of the tensors. Two meshes of the
same ranks are equal, whatever their groups: after a repair a result would have the mesh of before,
and its next collective fail ("Could not resolve the process group …"), or go to another group that
has the name by now.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType

import torch.distributed as dist
from torch import _C

#: Modules whose functions name no group any more. An argument gets its default when the function
#: is defined, so each module has to be gone through once only, after its import.
_done: dict[str, ModuleType] = {}


def forget(group: dist.ProcessGroup) -> None:
    """Forget a default group that is about to be destroyed, and what its meshes have given."""
    _forget_default(group)
    _forget_meshes()


def _forget_default(group: dist.ProcessGroup) -> None:
    """Put None, for which torch takes the default group of the call, in a group's place."""
    for function in _functions():
        positional, named = function.__defaults__ or (), function.__kwdefaults__ or {}
        if any(default is group for default in positional):
            function.__defaults__ = tuple(None if d is group else d for d in positional)
        named.update({name: None for name, default in named.items() if default is group})


def _functions() -> Iterator[FunctionType]:
    """Go through the functions and methods of what was imported of ``torch.distributed`` since.

    Only types are looked at: some of torch's objects warn when an attribute is read.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith(dist.__name__) and _done.get(name) is not module:
            _done[name] = module
            for value in list(vars(module).values()):
                if type(value) is FunctionType:
                    yield value
                elif issubclass(type(value), type) and value.__module__ == name:
                    yield from (v for v in vars(value).values() if type(v) is FunctionType)


def _forget_meshes() -> None:
    """Clear what this thread remembers of operations on DTensors, if it has had any."""
    api = sys.modules.get("torch.distributed.tensor._api")
    if api is None:
        return
    dispatcher = getattr(api.DTensor, "_op_dispatcher", None)
    propagate = getattr(dispatcher, "sharding_propagator", None)
    remembered = getattr(propagate, "propagate_op_sharding", None)
    for clear in (
        getattr(remembered, "cache_clear", None),
        getattr(_C, "_clear_DTensor_sharding_propagator_cache", None),
    ):
        if clear is not None:
            clear()
