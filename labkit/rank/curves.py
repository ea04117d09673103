"""Read the newest points of variables that ``lab.watch`` names, while the main thread trains.

The control channel's thread reads, so nothing here may wait: no tensor on a device is read, for
that would wait for all that was queued there, and no code of the user's is run. Each list gives a
few of its values, however long it is.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import numbers
from collections.abc import Iterator
from typing import Any

import torch

from ..wire import python_threads
from ..wire.requests import MOST_CURVES, MOST_POINTS, AskCurves, Curve, Curves
from . import tracebacks
from .observe import sampler

#: Stands for a variable that is not there.
_MISSING = object()
#: Digits of a value: a curve has no more, and it travels as text. What is larger counts as not
#: finite, what is smaller as zero: no axis has room for it.
DIGITS, LARGEST, SMALLEST = 6, 1e30, 1e-30

#: Variables of functions that the request has found: the function may end before the last look.
_held: dict[str, object] = {}


class Unreadable(Exception):
    """Say what a variable holds that cannot be drawn."""


def forget() -> None:
    """Forget what functions of the last cell held."""
    _held.clear()


def read(asked: AskCurves) -> Curves:
    """Return what is new of some variables."""
    curves: list[Curve] = []
    unreadable: dict[str, str] = {}
    for name in asked.names:
        value = _find(name)
        if value is _MISSING:
            continue
        before = len(curves)
        for label, entry in _entries(name, value):
            try:
                curves.append(read_curve(label, entry, *asked.known.get(label, (0, 0))))
            except Unreadable as error:
                unreadable.setdefault(name, str(error))
        if len(curves) > before:  # of a dict some entries are numbers
            unreadable.pop(name, None)
    return Curves(tuple(curves[:MOST_CURVES]), unreadable)


def _find(name: str) -> object:
    """Return the variable that the code which runs would see; ``_MISSING`` if there is none.

    Those of functions come before those of cells, the innermost function first. Once the request
    has ended, it is what was found last.
    """
    cells = tracebacks.get_shell().user_ns
    if not sampler.is_busy():
        return _held.get(name, cells.get(name, _MISSING))
    own = [
        frame
        for frame in python_threads.frames(sampler.main_frame())
        if python_threads.package(frame.f_code.co_filename) == ""
    ]
    for frame in own:
        code = frame.f_code
        # Of a traced function (a debugger's) f_locals would undo what was set there just now.
        if not code.co_flags & inspect.CO_OPTIMIZED or frame.f_trace is not None:
            continue
        # Only where it is: up to Python 3.12 f_locals keeps all that the function has now, a batch
        # and its logits, until it is read again or the function ends.
        if name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            value = frame.f_locals.get(name, _MISSING)
            if value is not _MISSING:
                return _hold(name, value)
    for frame in own:  # of lab.run: a function brings its own
        if frame.f_globals is not cells and name in frame.f_globals:
            return _hold(name, frame.f_globals[name])
    _held.pop(name, None)
    return cells.get(name, _MISSING)


def _hold(name: str, value: object) -> object:
    """Keep a list or a dict, which grows; a number would only grow old."""
    if isinstance(value, (list, dict)):
        _held[name] = value
    else:
        _held.pop(name, None)
    return value


def _entries(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield what a variable gives a curve of, and its name: itself, or each entry of a dict."""
    if not isinstance(value, dict):
        yield name, value
        return
    entries = dict.copy(value)  # in one step: the main thread may add to it
    for key in list(entries)[:MOST_CURVES]:
        if isinstance(key, (str, int)):
            yield f"{name}[{key!r}]", entries[key]


def read_curve(label: str, value: object, source: int = 0, count: int = 0) -> Curve:
    """Return the curve of a list or a number, of a list without the first ``count`` values if it is
    still the one called ``source``.

    Unreadable: if it is neither.
    """
    if type(value) not in (list, tuple):
        return Curve(label, (read_number(value),))
    values: Any = value
    same = source == id(values) and count <= len(values)
    begin, end = count if same else 0, len(values)
    every = max(1, math.ceil((end - begin) / MOST_POINTS))
    chosen = range(end - 1, begin - 1, -every)[::-1]  # the last one is among them
    found = []
    with contextlib.suppress(IndexError):  # the main thread has shortened it
        for i in chosen:
            found.append(read_number(values[i]))
    first = chosen[0] if len(chosen) else begin
    return Curve(label, tuple(found), first, every, id(values))


def read_number(value: object) -> float | None:
    """Return a number or what a 0-d tensor on the CPU holds, None where it is not finite.

    Unreadable: if it is anything else.
    """
    if type(value) in (torch.Tensor, torch.nn.Parameter):  # others may do anything, a DTensor sends
        tensor: Any = value
        if tensor.device.type != "cpu":
            raise Unreadable(
                f"a tensor on {tensor.device}, which is not read while a cell runs: keep "
                "its .item()"
            )
        if tensor.dim() or tensor.is_complex():
            shape = ", ".join(map(str, tensor.shape))
            raise Unreadable(f"a tensor of shape ({shape}) and {tensor.dtype}: keep numbers")
        value = tensor.item()
    if not isinstance(value, numbers.Real):
        kind = type(value).__name__
        raise Unreadable(f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}: keep numbers")
    number = float(value)
    if not abs(number) < LARGEST:
        return None
    return float(f"{number:.{DIGITS}g}") if abs(number) > SMALLEST else 0.0
