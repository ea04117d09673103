"""Run a function that came from the notebook, and move variables between the two."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from ..wire.memory_files import Address
from ..wire.packing import Packed, unpack
from ..wire.protocol import CELL_TIME
from ..wire.state import CellTime, Returned
from . import (
    activity,
    children,
    curves,
    debugger,
    interrupts,
    ipython_internals,
    leaving,
    names,
    quiet,
    reloading,
    spare_files,
    tracebacks,
)
from .observe import cell_calls, device, ended_groups, p2p_record
from .pickling import dump, explain

#: In a cell that looks at the error of the one before.
DEBUG = "%debug"
#: When the cells that run began: one that runs another cell (``run_cell``) has two.
_clock: list[CellTime] = []


def install(shell: Any) -> None:
    """Follow the cells of this rank, and note the event loop that this thread runs in, if any."""
    shell.events.register("pre_run_cell", begin_cell)
    shell.events.register("post_run_cell", end_cell)
    with contextlib.suppress(RuntimeError):
        activity.loop = asyncio.get_running_loop()


def begin_cell(info: object = None) -> None:
    """Record that a cell begins."""
    code = getattr(info, "raw_cell", "")
    names.put_back(tracebacks.get_shell())
    ipython_internals.forget_outputs(tracebacks.get_shell())
    activity.in_cell = True
    _begin(keeps_error=DEBUG in code)
    ended_groups.begin_cell(code)
    _clock.append(_now())


def end_cell(result: object = None) -> None:
    """Record that a cell has ended."""
    if _clock:
        began, now = _clock.pop(), _now()
        quiet.told[CELL_TIME] = [now.wall - began.wall, now.cpu - began.cpu]
    shell = tracebacks.get_shell()
    names.tell_changed(shell)
    activity.in_cell = False
    debugger.end()
    if isinstance(getattr(result, "error_in_exec", None), KeyboardInterrupt):
        children.end(_later)
    cell_calls.publish()
    ended_groups.end_cell(shell.user_ns)


def _now() -> CellTime:
    return CellTime(time.perf_counter(), time.process_time())


def _begin(*, keeps_error: bool = False) -> None:
    """Forget what belongs to earlier cells and calls."""
    if not keeps_error:
        ipython_internals.forget_error()
    p2p_record.places.clear()
    curves.forget()
    children.note()
    cell_calls.begin()


def _later(seconds: float, function: Callable[[], None]) -> None:
    ipython_internals.call_later(tracebacks.get_shell().kernel, seconds, function)


def _failed(error: BaseException, hint: str = "") -> Returned:
    """Return an error, with a sentence that says more."""
    ipython_internals.remember_error(error)
    lines = tracebacks.format_exception(error)
    message = tracebacks.tidy(error)
    if hint:
        message, lines = f"{message}\n{hint}", [*lines, hint]
    return Returned("error", (type(error).__name__, message, lines))


def _left(error: SystemExit) -> Returned:
    """Answer for a call that was left: its result is None, unless it was left with an error."""
    told = leaving.as_error(error)
    if told is None:
        return Returned("ok", dump(None))
    ipython_internals.remember_error(error)
    return Returned("error", (type(error).__name__, str(told), leaving.lines(error)))


@interrupts.reaches
def call(payload: Packed, file: Address | None = None) -> Returned:
    """Call the pickled ``(function, args, kwargs)``; return its result, pickled, or its error.

    What is large of the result goes to ``file``, as in ``pull`` and in ``_give``.
    """
    activity.in_call = True
    _begin()
    try:
        interrupts.begin()
        reloading.reload_changed()
        fn, args, kwargs = _load(payload)
        value = fn(*args, **kwargs)
        device.finish()
        return _give(value, file)
    except SystemExit as error:
        return _left(error)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            children.end(_later)
        return _failed(error, names.explain_missing(error, tracebacks.get_shell().user_ns))
    finally:
        activity.in_call = False
        debugger.end()
        ended_groups.end_call("lab.run")
        cell_calls.publish()


@interrupts.reaches
def pull(name: str, file: Address | None = None) -> Returned:
    """Return a variable of the cells, pickled; with dots in its name an attribute of one."""
    first, *path = name.split(".")
    known = tracebacks.get_shell().user_ns
    if first not in known:
        return Returned("missing")
    try:
        value = known[first]
        for step, part in enumerate(path):
            if not hasattr(value, part):
                owner = ".".join([first, *path[:step]])
                text = f"{owner} is a {type(value).__name__}, which has no {part}"
                return Returned("missing", ("AttributeError", text, []))
            value = getattr(value, part)
    except BaseException as error:
        return _failed(error)
    return _give(value, file, name)


def _load(payload: Packed) -> Any:
    """Load a value of the notebook's, also where a cell has used up all descriptors."""
    with spare_files.lent_if_full():
        return unpack(payload)


def _give(value: Any, file: Address | None, name: str = "") -> Returned:
    """Return a value, pickled, or why that cannot be."""
    try:
        with spare_files.lent_if_full():
            return Returned("ok", dump(value, file))
    except Exception as error:
        text = explain(error, value, name)
        kind = type(error).__name__
        if name:
            return Returned("missing", (kind, text, []))
        return Returned("error", (kind, text, [f"{kind}: {text}"]))
    except BaseException as error:
        return _failed(error)


def delete(name: str) -> bool:
    """Delete a variable of the cells; return whether there was one."""
    known = tracebacks.get_shell().user_ns
    is_there = name in known
    known.pop(name, None)
    return is_there


@interrupts.reaches
def push(payload: Packed) -> Returned:
    """Set variables of the cells from a pickled dict."""
    try:
        tracebacks.get_shell().push(_load(payload), interactive=False)
    except BaseException as error:
        return _failed(error)
    return Returned("ok")
