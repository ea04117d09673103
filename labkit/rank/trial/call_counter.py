"""Count what is sent while an answer runs, and refuse what its exercise forbids.

This sits where every call has to pass, however it was imported: at the methods of
``ProcessGroup`` and of its backends, and at the functional operators. What C++ calls by itself
(DDP's reducer) passes by.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from ...base.errors import LabError
from ...wire.protocol import MEASURES
from .. import tracebacks
from ..torch_internals import collectives
from ..torch_internals import frames as torch_frames
from ..torch_internals.groups import Work

_MESSAGES, _BYTES, _COLLECTIVES = MEASURES
#: These overwrite their first argument; all others bring their second.
_IN_PLACE = ("allreduce", "allreduce_coalesced", "broadcast", "reduce")
#: The forms that send objects: torch makes two collectives or three for one call, as the lengths
#: go first. A call is one, whatever it sends.
_OBJECT_FORMS = (
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "scatter_object_list",
)
#: Where code of torch and of labkit stands: what it calls, the answer has not called.
_OTHERS = (torch_frames.TORCH, str(Path(__file__).parents[2]) + os.sep)

#: How to put back what is replaced at the moment, last step first; each may be taken twice.
_undo: list[Callable[[], None]] = []


class Forbidden(LabError):
    """Say that the exercise is to be solved without this call."""


class Count:
    """What one rank has sent, and which forbidden calls it made."""

    def __init__(self, forbids: Sequence[str] = ()) -> None:
        self.numbers = dict.fromkeys(MEASURES, 0)
        self.forbidden: list[str] = []
        self.messages: list[Work] = []  #: sends and receives, kept until they have arrived
        self.late = 0.0  #: seconds that this rank comes late to each of its messages
        self._forbids = tuple(forbids)
        self._families = collectives.forbidden_families(self._forbids)

    def be_late(self, seconds: float) -> None:
        """Come so much later to each message from now on."""
        self.late = seconds

    def refuse(self, name: str) -> None:
        """Record a forbidden call and raise :class:`Forbidden`."""
        self.forbidden.append(name)
        raise Forbidden(f"dist.{name} is not allowed in this exercise.")

    def pass_collective(self, name: str) -> None:
        """Make a collective pass, unless it is forbidden in every form or by its own name."""
        called = _called_as()
        if called in self._forbids:
            self.refuse(called)
        if name in self._families:
            self.refuse(name)

    def pass_message(self, method: str) -> None:
        """Make a message pass, unless it is forbidden by the function that it comes from."""
        called, behind = _called_as(), collectives.MESSAGES[method]
        wrong = [called] if called else [name for name in behind if name in self._forbids]
        if wrong and wrong[0] in self._forbids:
            self.refuse(wrong[0])


#: What the trial that runs counts, or the last one counted.
current = Count()


def _called_as() -> str:
    """Name the function of torch.distributed that was called, "" if it was a group's method."""
    frame: FrameType | None = sys._getframe(2)
    name = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if "torch/distributed/" in path and frame.f_code.co_name != "wrapper":
            name = frame.f_code.co_name
        elif frame.f_code.co_name == "__torch_function__":
            pass  # a mode's: torch's function calls itself through it
        elif (name or tracebacks.is_cell(path)) and "torch/" not in path:
            break
        frame = frame.f_back
    return name


def size_of(value: Any) -> int:
    """Add up the bytes of a tensor, or of all tensors in lists of them."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, list | tuple):
        return sum(size_of(part) for part in value)
    return 0


@contextmanager
def counting(forbids: Sequence[str], names: dict[str, Any]) -> Iterator[Count]:
    """Count from here on, and refuse the functions in ``forbids``; afterwards all is as before.

    ``names`` are those of the cells: one that stands for a forbidden function is refused too.
    """
    global current
    restore()
    current = count = Count(forbids)
    try:
        for owner in collectives.owners():
            _replace_methods(owner, count)
        _replace_operators(count)
        for name in _OBJECT_FORMS:
            _count_once(name, count, names)
        for name in forbids:
            _replace_function(name, count, names)
        yield count
    finally:
        restore()


def restore() -> None:
    """Put everything back in its place, whatever interrupts it meanwhile.

    A rank that is freed may be interrupted too, and just here: what would stay replaced would
    refuse calls of all later cells. A step that was cut short is taken again.
    """
    interrupt = None
    while _undo:
        try:
            _undo[-1]()
            _undo.pop()
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _set(owner: Any, name: str, ours: Any) -> None:
    original = owner.__dict__.get(name, ours)
    if original is ours:  # inherited or made on demand: ours only hides it
        _undo.append(lambda: _delete(owner, name))
    else:
        _undo.append(lambda: setattr(owner, name, original))
    setattr(owner, name, ours)


def _delete(owner: Any, name: str) -> None:
    if name in owner.__dict__:
        delattr(owner, name)


def _replace_methods(owner: Any, count: Count) -> None:
    for name, methods in collectives.METHODS.items():
        for method in methods:
            if hasattr(owner, method):
                _set(owner, method, _collective(owner, name, method, count))
    for method in collectives.MESSAGES:
        if hasattr(owner, method):
            _set(owner, method, _message(owner, method, count))


def _collective(owner: Any, name: str, method: str, count: Count) -> Callable[..., Any]:
    original = getattr(owner, method)

    def issue(self: Any, *args: Any, **named: Any) -> Any:
        count.pass_collective(name)
        result = original(self, *args, **named)
        count.numbers[_COLLECTIVES] += 1
        count.numbers[_BYTES] += _brought(self, name, method, args)
        return result

    return issue


def _brought(group: Any, name: str, method: str, args: tuple[Any, ...]) -> int:
    """Return the bytes that this rank brings to a collective."""
    if name == "barrier":
        return 0
    if method in _IN_PLACE:
        root = collectives.root_in(args[1]) if len(args) > 1 else 0
        if name == "broadcast" and root != group.rank():
            return 0
        return size_of(args[0])
    return size_of(args[1]) if len(args) > 1 else 0


def _message(owner: Any, method: str, count: Count) -> Callable[..., Any]:
    original = getattr(owner, method)

    def post(self: Any, tensors: Any, *args: Any, **named: Any) -> Any:
        count.pass_message(method)
        time.sleep(count.late)
        result = original(self, tensors, *args, **named)
        if result is not None:  # in a batch NCCL gives one Work for all, at its end
            count.messages.append(result)
        if method == "send":
            count.numbers[_MESSAGES] += 1
            count.numbers[_BYTES] += size_of(tensors)
        return result

    return post


def _replace_operators(count: Count) -> None:
    for owner, name, operator in list(collectives.operators()):
        _set(owner, operator, _operator(owner, name, operator, count))


class _Operator:
    """Stand in for an operator: counted when it is called, the original one in all else.

    Torch reads attributes of operators (``.default``) when it imports parts of itself.
    """

    def __init__(self, original: Any, issue: Callable[..., Any]) -> None:
        self._original, self._issue = original, issue

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._issue(*args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _operator(owner: Any, name: str, operator: str, count: Count) -> _Operator:
    original = getattr(owner, operator)

    def issue(*args: Any, **named: Any) -> Any:
        count.pass_collective(name)
        result = original(*args, **named)
        count.numbers[_COLLECTIVES] += 1
        count.numbers[_BYTES] += size_of(args[0]) if args else 0
        return result

    return _Operator(original, issue)


def _count_once(name: str, count: Count, names: dict[str, Any]) -> None:
    """Count one collective for each call of a function."""
    original = getattr(dist, name)

    def once(*args: Any, **named: Any) -> Any:
        before = count.numbers[_COLLECTIVES]
        try:
            return original(*args, **named)
        finally:
            count.numbers[_COLLECTIVES] = min(count.numbers[_COLLECTIVES], before + 1)

    _put(name, original, once, names)


def _put(name: str, original: Any, ours: Any, names: dict[str, Any]) -> None:
    """Put a function in the place of one of torch.distributed, for cells too."""
    for owner in (dist, dist.distributed_c10d):
        if getattr(owner, name, None) is original:
            _set(owner, name, ours)
    for own in [own for own, value in names.items() if value is original]:
        names[own] = ours
        _undo.append(lambda own=own: names.__setitem__(own, original))  # type: ignore[misc]


def _replace_function(name: str, count: Count, names: dict[str, Any]) -> None:
    """Refuse a function of torch.distributed that has no collective of its own behind it."""
    original = getattr(dist, name, None)
    behind = {function for functions in collectives.MESSAGES.values() for function in functions}
    if (
        original is None
        or name in behind
        or collectives.FORMS.get(name, name) in collectives.METHODS
    ):
        return

    def refuse(*args: Any, **named: Any) -> Any:
        if sys._getframe(1).f_code.co_filename.startswith(_OTHERS):
            return original(
                *args, **named
            )  # labkit looks at this rank, say, and asks for its number
        count.refuse(name)

    _put(name, original, refuse, names)
