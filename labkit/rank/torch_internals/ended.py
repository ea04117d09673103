"""Know the process groups that have ended, and what of torch still holds one."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import groups, reducers
from .groups import ProcessGroup, Work

#: Makes the error of a model that would communicate in a group that has ended.
Explain = Callable[[object, object], Exception]

#: Groups that there were at some time.
_known: WeakSet[ProcessGroup] = WeakSet()
#: Those that have ended, and with what: "In[3]".
_ended: WeakKeyDictionary[ProcessGroup, str] = WeakKeyDictionary()
#: Default groups among them.
_worlds: WeakSet[ProcessGroup] = WeakSet()
#: Handles of calls that were under way in such a group, and with what that ended.
_works: WeakKeyDictionary[Work, str] = WeakKeyDictionary()
#: Models that say so when they are called.
_refusing: WeakSet[torch.nn.Module] = WeakSet()
_explain: Explain | None = None
#: With what the last groups ended that labkit has left.
_last = ""
#: Ends the name that a mesh has for a sub-group that has ended.
GONE = " (ended)"


def note_living() -> None:
    """Record the groups of now."""
    living = groups.members()
    _known.update(living)
    if living:
        _worlds.add(groups.default())


def note_destroyed(how: str) -> None:
    """Record which groups have gone since they were noted, and with what."""
    living = groups.members()
    for group in list(_known):
        if group not in living:
            _ended.setdefault(group, how)
            _known.discard(group)
    note_living()


def note_all(how: str, explain: Explain) -> None:
    """Record that all groups of now end, and let models that have one say so when they are
    called."""
    global _explain, _last
    _explain = explain
    _last = how
    note_living()
    for group in list(_known):
        _ended.setdefault(group, how)
        _known.discard(group)
    for model in reducers.models():
        if model not in _refusing:
            model.register_forward_pre_hook(_refuse)
            _refusing.add(model)
    if len(groups.members()) > 1:  # there are sub-groups, which meshes may name
        module = sys.modules.get("torch.distributed.device_mesh")
        if module is not None:  # torch keeps no list of meshes: this takes some 50 ms
            for mesh in [o for o in gc.get_objects() if issubclass(type(o), module.DeviceMesh)]:
                _rename(mesh)


def _rename(mesh: Any) -> None:
    """Make a mesh name no sub-group any more: another one will have the name, of other ranks.

    A mesh knows its groups by their names alone, so that of all ranks goes on with the next one.
    """
    names = getattr(mesh, "_dim_group_names", None)
    if isinstance(names, list) and dist.is_initialized():
        whole = groups.default().group_name
        names[:] = [n if n == whole or n.endswith(GONE) else f"{n}{GONE}" for n in names]


def note_works(works: list[Work], how: str) -> None:
    """Record the handles of what was under way in groups that end."""
    _works.update(dict.fromkeys(works, how))


def _refuse(model: Any, given: Any) -> None:
    """Raise an error where a DDP model is about to communicate in a group that has ended."""
    group = getattr(model, "process_group", None)
    if _explain is None or not is_ended(group):
        return
    trains = torch.is_grad_enabled() and model.require_backward_grad_sync
    if trains or model.will_sync_module_buffers():
        raise _explain(model, group)


def was_default(group: object) -> bool:
    """Return whether a group was a default group, of all ranks."""
    return isinstance(group, ProcessGroup) and group in _worlds


def any_noted() -> bool:
    """Return whether a group has ended that something may still hold."""
    return bool(_last) or bool(_ended) or bool(_works)


def models_of(loss: Any) -> list[Any]:
    """Return the DDP models whose groups have ended and whose parameters a result came from."""
    stale = [m for m in reducers.models() if is_ended(m.process_group)]
    leaves = _leaves(getattr(loss, "grad_fn", None)) if stale else set()
    return [m for m in stale if any(id(p) in leaves for p in m.parameters())]


def _leaves(node: Any) -> set[int]:
    """Return the identities of the parameters that a graph of autograd ends in."""
    found, seen, left = set(), set(), [node]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (parameter := getattr(node, "variable", None)) is not None:
            found.add(id(parameter))
        left += [following for following, _ in node.next_functions]
    return found


def is_ended(group: object) -> bool:
    """Return whether something is a group that has ended."""
    return isinstance(group, ProcessGroup) and group in _ended


def check(group: ProcessGroup) -> None:
    """Raise an error for a call in a group that has ended, before it goes out."""
    if _ended and group in _ended:
        raise ValueError("This process group has ended.")


def how(thing: object) -> str:
    """Return with what a group, or the group of a handle, has ended; "" if that is not known."""
    if isinstance(thing, Work):
        return _works.get(thing, "")
    if has_renamed(thing):
        return _last
    return _ended.get(thing, "") if isinstance(thing, ProcessGroup) else ""


def has_renamed(thing: object) -> bool:
    """Return whether a mesh, or the mesh of a tensor, has had sub-groups that have ended."""
    mesh = getattr(thing, "device_mesh", thing) if _kind_of_sharded(thing) else None
    names = getattr(mesh, "_dim_group_names", None)
    return isinstance(names, list) and any(str(n).endswith(GONE) for n in names)


def group_of(value: object) -> object:
    """Return the group that has ended which something of torch's has, None if it has none.

    Handles and meshes stand for their groups.
    """
    if has_renamed(value):
        return value
    if isinstance(value, Work):
        return value if value in _works else None
    if isinstance(value, DistributedDataParallel):
        value = value.process_group
    return value if is_ended(value) else None


def holds(thing: object) -> bool:
    """Return whether something is a model, an optimizer, a tensor or a mesh."""
    return isinstance(thing, torch.nn.Module | torch.optim.Optimizer) or bool(
        _kind_of_sharded(thing)
    )


def contains(model: object, thing: object) -> bool:
    """Return whether a module is a part of a model."""
    return (
        isinstance(thing, torch.nn.Module)
        and isinstance(model, torch.nn.Module)
        and any(part is thing for part in model.modules())
    )


def kind(thing: object) -> str:
    """Return what a thing is, as the course says."""
    if isinstance(thing, DistributedDataParallel):
        return "DDP"
    if isinstance(thing, Work):
        return "handle of a call"
    if isinstance(thing, ProcessGroup):
        return "old default group" if was_default(thing) else "sub-group"
    return _kind_of_sharded(thing) or type(thing).__name__


def _kind_of_sharded(thing: object) -> str:
    """Return "FSDP", "DTensor" or "mesh" for what is one; nothing is imported for that."""
    for module, name, shown in (
        ("torch.distributed.fsdp", "FullyShardedDataParallel", "FSDP"),
        ("torch.distributed.fsdp", "FSDPModule", "FSDP"),
        ("torch.distributed.tensor", "DTensor", "DTensor"),
        ("torch.distributed.device_mesh", "DeviceMesh", "mesh"),
    ):
        owner = getattr(sys.modules.get(module), name, None)
        if isinstance(owner, type) and isinstance(thing, owner):
            return shown
    return ""
