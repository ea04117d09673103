"""Note what the flight recorder leaves out of a call: its root, its splits, where it stands.

Only calls that Python makes are seen; DDP issues its own in C++.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from ...wire.protocol import ROOTED
from ...wire.samples import MessageKey, Size
from .. import tracebacks
from ..torch_internals import collectives, groups
from ..torch_internals.groups import ProcessGroup, Work
from . import collective_notes

#: Calls and messages of a group that are kept: the newest.
KEPT = 128

#: The files between a line that calls torch.distributed itself and what notes the call.
_BETWEEN = collectives.FILES | {__file__, str(Path(__file__).with_name("p2p_record.py"))}

#: A file and a line of it.
Place = tuple[str, int]


class Call(NamedTuple):
    """What one rank gave a collective, beside its tensors."""

    place: Place | None
    root: int | None = None  #: in the group
    #: elements for each member, and from each
    splits: tuple[tuple[int, ...], tuple[int, ...]] | None = None


#: group -> backend, and the number of the operation there -> the call
calls: WeakKeyDictionary[ProcessGroup, dict[tuple[str, int], Call]] = WeakKeyDictionary()
#: group -> message -> elements, type, place and time
sizes: WeakKeyDictionary[ProcessGroup, dict[MessageKey, tuple[int, str, Place | None, int]]] = (
    WeakKeyDictionary()
)
#: group -> messages noted since the cell began
fresh: WeakKeyDictionary[ProcessGroup, int] = WeakKeyDictionary()
#: the root (in the group) of the call that a Work came from, if it has one
roots: WeakKeyDictionary[Work, int] = WeakKeyDictionary()
#: where the call stood that a Work came from
origins: WeakKeyDictionary[Work, Place] = WeakKeyDictionary()


def find_place() -> Place | None:
    """Return the innermost line of a cell that the caller was called from."""
    return _find_call()[0]


def _find_call() -> tuple[Place | None, bool]:
    """Return the innermost line of a cell in the stack, and whether that calls torch itself."""
    frame, direct = sys._getframe(1), True
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename not in _BETWEEN:
            if tracebacks.is_cell(filename):
                return (filename, frame.f_lineno), direct
            direct = False
        frame = frame.f_back  # type: ignore[assignment]
    return None, False


def note_call(group: ProcessGroup, name: str, args: Sequence[Any], work: Work | None) -> None:
    """Record a collective that has just been issued by the method ``name`` with ``args``."""
    place, direct = _find_call()
    root, splits = ends(group, name, args)
    if work is not None and place is not None:
        origins[work] = place
    if work is not None and root is not None:
        roots[work] = root
    backend = groups.serving(group, tensors(args))
    operation = None if work is None else groups.operation(work)
    if operation is None:
        operation = groups.issued(group)
    if operation is None:
        return
    call = Call(place, root, splits)
    _keep(calls.setdefault(group, {}), (backend, operation), call)
    own_root = -1 if root is None else root
    collective_notes.note(group, name, args, backend, operation, (own_root, place, direct))


def tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    """Return the first tensors among the arguments of a method, in lists or not."""
    for arg in args:
        first = arg
        while isinstance(first, list | tuple) and first:
            first = first[0]
        if isinstance(first, torch.Tensor):
            return [first]
    return []


def ends(
    group: ProcessGroup, name: str, args: Sequence[Any]
) -> tuple[int | None, tuple[tuple[int, ...], tuple[int, ...]] | None]:
    """Return the root and the splits that a method was given."""
    family = collectives.family(name)
    if family in ROOTED:
        roots = (getattr(a, "rootRank", None) for a in args)
        return next((int(r) for r in roots if r is not None), None), None
    if family != "all_to_all":
        return None, None
    if name == "alltoall" and len(args) >= 2:
        given, taken = args[1], args[0]
        return None, (tuple(t.numel() for t in given), tuple(t.numel() for t in taken))
    if len(args) >= 4 and isinstance(args[0], torch.Tensor) and isinstance(args[1], torch.Tensor):
        size = group.size()
        return None, (_rows(args[1], args[3], size), _rows(args[0], args[2], size))
    return None, None


def _rows(tensor: torch.Tensor, splits: Sequence[int], size: int) -> tuple[int, ...]:
    """Return how many elements of a tensor each of ``size`` members has part in."""
    if not splits:
        return (tensor.numel() // size,) * size
    rows = tensor.shape[0] if tensor.dim() else 0
    each = tensor.numel() // rows if rows else 0
    return tuple(each * int(n) for n in splits)


def note_message(
    group: ProcessGroup, key: MessageKey, tensors: Sequence[torch.Tensor], work: Work | None,
    began: int = 0,
) -> None:  # fmt: skip
    """Record the size of one end of a message, where its call stands, and when that began."""
    place = find_place()
    if work is not None and place is not None:
        origins[work] = place
    kind = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
    _keep(sizes.setdefault(group, {}), key, (sum(t.numel() for t in tensors), kind, place, began))
    fresh[group] = fresh.get(group, 0) + 1
    collective_notes.note_others(group, groups.serving(group, tensors))


def _keep(record: dict[Any, Any], key: Any, value: Any) -> None:
    record[key] = value
    while len(record) > KEPT:
        del record[next(iter(record))]


# -- what others read ---------------------------------------------------------------------------


def describe(place: Place | None) -> tuple[str, str]:
    """Return place and text of a line: ``("In[7], line 3", "dist.barrier()")``."""
    return ("", "") if place is None else tracebacks.describe(*place)


def sizes_of(group: ProcessGroup, newest: int) -> dict[MessageKey, Size]:
    """Return the sizes of the newest messages of a group; peers are numbers in it."""
    # Of a copy: the main thread adds to it.
    known = list(dict(sizes.get(group) or {}).items())[-newest:]
    return {
        key: Size(elements, kind, *describe(place), began)
        for key, (elements, kind, place, began) in known
    }
