"""Let an interrupt reach the code of a cell, and nothing else in a rank.

Between cells, while a reply is being sent or the process group formed, a KeyboardInterrupt would
cost the reply, or the rank: the notebook would wait for what never comes. An interrupt that comes
before the code of its cell has begun is kept for it; one that comes when it has ended is dropped.
One that comes while a library is being imported waits until it is: cut in the middle, an import
leaves parts of it behind, and the rank could not use it ever again (``torch._dynamo``, which the
first step of an optimizer imports, takes seconds).
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import signal
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, BinaryIO, TypeVar

from ..base import times
from ..wire import protocol, python_threads, remote_calls
from ..wire.protocol import RECORD_FOLDER
from . import ipython_internals, steady

F = TypeVar("F", bound=Callable[..., Any])

#: Functions on whose behalf code of the learner's runs: what they raise is told to the notebook.
_runners: set[CodeType] = set()
#: Whether the code of the request that is being handled has begun.
_begun = True
#: Whether an interrupt came before that.
_early = False
#: Counts the requests.
_request = 0
#: When an interrupt of this request began to wait for an import; 0: none has.
_waits_since = 0.0
#: Whether one waits to be sent again.
_is_due = False
#: ``later(seconds, function)`` calls a function in another thread.
_later: Callable[[float, Callable[[], None]], object] | None = None


def reaches(function: F) -> F:
    """Make an interrupt reach what this function does: what it raises is told to the notebook."""
    _runners.add(ipython_internals.code_of(function))
    return function


def install(kernel: Any) -> None:
    """Begin, in the kernel of this rank."""
    global _later
    if ipython_internals.control_loop(kernel) is not None:
        _later = functools.partial(ipython_internals.call_later, kernel)
    _runners.update(ipython_internals.codes_of_cells(kernel.shell))
    write_stacks()
    ipython_internals.on_interrupt(kernel, _begin_request, handle)


def _begin_request() -> None:
    global _begun, _early, _request, _waits_since
    _begun = _early = False
    _request += 1
    _waits_since = 0.0
    _forget_stacks()


def begin() -> None:
    """Record that the code of a request begins; raise an interrupt that came before."""
    global _begun, _early
    _begun, early, _early = True, _early, False
    if early:
        raise KeyboardInterrupt


def handle(signum: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt where code of the learner's runs."""
    global _early
    runs = _in_code(frame)
    if runs and _waits_for_import(frame):
        return
    _note_interrupt()
    if runs:
        signal.default_int_handler(signum, frame)
    _early = not _begun


def _waits_for_import(frame: FrameType | None) -> bool:
    """Return whether an interrupt has to wait for an import; then it is sent again a little
    later."""
    global _waits_since, _is_due
    if _later is None or not is_importing(frame):
        _waits_since = 0.0
        return False
    _waits_since = _waits_since or steady.now()
    if steady.now() - _waits_since > times.IMPORTED:
        return False
    if not _is_due:
        _is_due = True
        _later(times.INTERRUPT_AGAIN, functools.partial(_send_again, _request))
    return True


def _send_again(request: int) -> None:
    """Send an interrupt again, unless the request that it was meant for has ended."""
    global _is_due
    _is_due = False
    if request == _request:
        os.kill(os.getpid(), signal.SIGINT)


def is_importing(frame: FrameType | None) -> bool:
    """Return whether a stack stands in the import of a library. The learner's own modules may do
    anything while they are imported, also forever."""
    for own in python_threads.frames(frame):
        file = own.f_code.co_filename
        if file.startswith(python_threads.IMPORTING):
            return True
        if not file.startswith("<") and not python_threads.package(file):
            return False
    return False


def _in_code(frame: FrameType | None) -> bool:
    """Return whether a stack stands in code of the learner's, or in a remote call that may be
    cut."""
    while frame is not None:
        if frame.f_code in _runners or ipython_internals.is_applied(frame):
            return True
        outer = frame.f_back
        is_remote_call = frame.f_code is remote_calls.on_rank.__code__
        if is_remote_call and outer and ipython_internals.is_applied(outer):
            return False  # labkit's own; a trial is one too, within a call
        frame = outer
    return False


# -- where this rank stands, for the notebook to read -------------------------------------------

_file: BinaryIO | None = None


def write_stacks() -> None:
    """Write the main thread's stack on a signal, and that of a crash, where there is a folder: how
    the notebook learns where this rank stands while C code holds the interpreter."""
    global _file
    folder = os.environ.get(RECORD_FOLDER)
    if not folder or protocol.STACK_SIGNAL is None or not hasattr(faulthandler, "register"):
        return
    with contextlib.suppress(OSError):  # no room: a stop does not say then where the rank is
        _file = open(protocol.stack_path(folder, os.getpid()), "ab", buffering=0)  # noqa: SIM115
        # The stack of the thread that gets the signal: that of a process goes to the main one.
        faulthandler.register(protocol.STACK_SIGNAL, file=_file, all_threads=False)
        faulthandler.enable(_file, all_threads=False)  # and of the thread that crashes


def _forget_stacks() -> None:
    """Forget what was written for an earlier request."""
    if _file is not None:
        with contextlib.suppress(OSError):
            os.ftruncate(_file.fileno(), 0)


def _note_interrupt() -> None:
    """Write down that Python has seen an interrupt."""
    if _file is not None:
        with contextlib.suppress(OSError):
            _file.write(protocol.SEEN.encode())
