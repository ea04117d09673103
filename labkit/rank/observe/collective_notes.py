"""Note what the collectives of a cell are given: type, order in memory, operation and line.

Gloo takes the bytes of a tensor as they lie. Where ranks give it other types of the same size, or
their dimensions in another order, its result is wrong and nobody says so: the notebook compares
these notes when a cell has ended (``labkit.runtime.unlike_calls``). The methods of a process group
are where Python's tensors are seen. What torch issues in C++ is in its recorder, with types alone.

What gloo does with a tensor that is not contiguous was tried on torch 2.15: of the methods that
``_layout`` does not name it copies, so the result is right; sends and receives refuse it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from ..torch_internals import collectives
from ..torch_internals.groups import GLOO, ProcessGroup

#: Collectives of a cell that are kept for each group: the newest.
KEPT = 512
#: Types of tensors that are looked at in one call.
TYPES = 16

#: Methods that hand memory over as it lies, and which arguments' memory that is.
AS_IT_LIES = {
    "allreduce": (0,), "broadcast": (0,), "reduce": (0,), "scatter": (0, 1), "reduce_scatter": (0,),
}  # fmt: skip
#: Methods that first copy an argument to memory without gaps, in the order that it has.
IN_ITS_ORDER = {
    "reduce_scatter": (1,), "_reduce_scatter_base": (1,), "reduce_scatter_single": (1,),
}  # fmt: skip
#: Methods that fill their first argument as if it were contiguous.
FILLS = ("alltoall_base", "all_to_all_single")
#: Methods that take a short tensor for a complete one, and the argument that tells its size.
SHORT = {"broadcast": 0, "scatter": 0, "gather": 1}


class Note(NamedTuple):
    """What one collective was given; equal for the calls of a loop."""

    name: str
    backend: str
    types: tuple[torch.dtype, ...]
    elements: int
    order: str
    gaps: bool
    op: str
    root: int
    place: tuple[str, int] | None
    direct: bool


#: group -> backend -> of this cell's newest: operation there, how many of these are no
#: collectives, and the note
noted: WeakKeyDictionary[ProcessGroup, dict[str, deque[tuple[int, int, Note]]]] = (
    WeakKeyDictionary()
)
#: group -> backend -> what it has numbered there together with collectives, as gloo does: messages,
#: and the parts of monitored barriers
others: WeakKeyDictionary[ProcessGroup, dict[str, int]] = WeakKeyDictionary()


def note(
    group: ProcessGroup,
    method: str,
    args: Sequence[Any],
    backend: str,
    operation: int,
    call: tuple[int, tuple[str, int] | None, bool],
) -> None:
    """Record a collective that has been issued by a method with ``args``: its root in the group
    (-1 if it has none), place, and whether that calls torch itself."""
    order, gaps = _layout(method, args)
    known = noted.setdefault(group, {}).setdefault(backend, deque(maxlen=KEPT))
    told = Note(
        collectives.family(method), backend, _types(args), _elements(method, args), order, gaps,
        _operation(args), *call,
    )  # fmt: skip
    less = count_others(group, backend)
    for number in range(operation - _parts(group, method, args, backend), operation):
        known.append((number + 1, less, told))


def _parts(group: ProcessGroup, method: str, args: Sequence[Any], backend: str) -> int:
    """Return how many numbers a call takes: gloo reduces for each rank or tensor alone."""
    if backend != GLOO or not method.startswith("reduce_scatter"):
        return 1
    return group.size() if method == "reduce_scatter" else len(_tensors(args, 0))


def note_others(group: ProcessGroup, backend: str, count: int = 1) -> None:
    """Record that a backend has numbered something in a group that is no collective."""
    known = others.setdefault(group, {})
    known[backend] = known.get(backend, 0) + count


def count_others(group: ProcessGroup, backend: str) -> int:
    """Return how many numbers of a backend in a group are not of collectives."""
    return others[group].get(backend, 0) if group in others else 0


def _tensors(args: Sequence[Any], at: int) -> Sequence[torch.Tensor]:
    """Return the tensors of an argument; of one that has lists of them, those of the first."""
    return _flat(args[at]) if at < len(args) else ()


def _flat(arg: Any) -> Sequence[torch.Tensor]:
    if isinstance(arg, torch.Tensor):
        return (arg,)
    if isinstance(arg, list | tuple) and arg:
        return arg if isinstance(arg[0], torch.Tensor) else _flat(arg[0])
    return ()


def _types(args: Sequence[Any]) -> tuple[torch.dtype, ...]:
    """Return the type of a call's tensors, or each one's if they have several."""
    for arg in args:
        if tensors := _flat(arg):
            return shorten(t.dtype for t in tensors[:TYPES])
    return ()


def shorten(types: Iterable[Any]) -> tuple[Any, ...]:
    """Return types as one if they are all the same."""
    found = tuple(types)
    return found[:1] if len(set(found)) == 1 else found


def _elements(method: str, args: Sequence[Any]) -> int:
    tensors = _tensors(args, SHORT[method]) if method in SHORT else ()
    return tensors[0].numel() if tensors else -1


def _operation(args: Sequence[Any]) -> str:
    """Return the name of the operation that a reduction was given."""
    op = getattr(args[-1], "reduceOp", None) if args else None
    kind = getattr(op, "op", op)
    return getattr(kind, "name", "")


def _layout(method: str, args: Sequence[Any]) -> tuple[str, bool]:
    """Return in which order of dimensions a call's memory is used, and whether memory beside its
    elements is."""
    if method in FILLS:
        return "", not all(_is_contiguous(t) for t in _tensors(args, 0))
    orders, gaps = set(), False
    for at in AS_IT_LIES.get(method, ()):
        for tensor in _tensors(args, at):
            if _is_contiguous(tensor):
                orders.add("")
            else:
                orders.add(order_of(tensor))
                gaps |= has_gaps(tensor)
    for at in IN_ITS_ORDER.get(method, ()):
        orders.update(
            "" if _is_contiguous(tensor) else order_of(tensor) for tensor in _tensors(args, at)
        )
    return (orders.pop() if len(orders) == 1 else ""), gaps or len(orders) > 1


def _is_contiguous(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's elements lie one after the other; a sparse one has its own."""
    return tensor.layout is not torch.strided or tensor.is_contiguous()


def _dimensions(tensor: torch.Tensor) -> list[tuple[int, int, int]]:
    """List the dimensions that have a stride, outermost in memory first: (-stride, index, size)."""
    sizes, strides = tensor.shape, tensor.stride()
    return sorted((-strides[i], i, sizes[i]) for i in range(len(sizes)) if sizes[i] > 1)


def order_of(tensor: torch.Tensor) -> str:
    """Return the dimensions of a tensor as they lie in memory, "" if that is their own order.

    >>> order_of(torch.zeros(2, 3).t())
    '1,0'
    >>> order_of(torch.zeros(2, 3)[:, :2])
    ''
    """
    found = [i for _, i, _ in _dimensions(tensor)]
    return "" if found == sorted(found) else ",".join(map(str, found))


def has_gaps(tensor: torch.Tensor) -> bool:
    """Return whether elements of a tensor do not lie one after the other in any order.

    >>> has_gaps(torch.zeros(2, 3).t()), has_gaps(torch.zeros(2, 3)[:, :2])
    (False, True)
    >>> has_gaps(torch.zeros(1).expand(3))
    True
    """
    expected = 1
    for stride, _, size in reversed(_dimensions(tensor)):
        if -stride != expected:
            return True
        expected *= size
    return False
