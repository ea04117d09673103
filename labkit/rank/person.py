"""Ask the person at the notebook from the code of a cell: ``input()``, ``getpass``, a debugger.

The question goes out as a display, behind all that this rank has printed; the answer comes on the
control channel, whose thread is free while the main thread waits here.
"""

from __future__ import annotations

import builtins
import getpass
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from ..errors import LabError
from ..wire.asking import ASKED, Asked, May, refusal
from ..wire.encoding import encode
from ..wire.requests import Answer
from . import ipython_internals, tracebacks

#: Said after the stop button: a debugger that catches the interrupt would only ask again.
STOPPED = "The cell was stopped while it asked."


class _Question:
    """A question that is open: the main thread waits for its answer."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()


_lock = threading.Lock()
_open: _Question | None = None
#: Number of the last question.
_last = 0
#: The request whose questions were stopped.
_stopped: object = None
#: Tells whether a cell or a function of the notebook runs, set by :func:`install`.
_runs: Callable[[], bool] = bool


def install(kernel: Any, runs: Callable[[], bool]) -> None:
    """Let what reads from a person ask the notebook's; ``runs`` tells whether a request runs."""
    global _runs
    _runs = runs
    ipython_internals.take_input(kernel, read, read_secret)
    # Also where ipykernel puts nothing in their place: in a call of the notebook, in a thread.
    builtins.input = read
    getpass.getpass = read_secret


def read(prompt: object = "", /) -> str:
    """Return what a person answers, as ``input`` does."""
    return _ask(str(prompt), "input()")


def read_secret(prompt: str = "Password: ", stream: object = None, **named: object) -> str:
    """Return what a person answers and nobody sees, as ``getpass.getpass`` does."""
    return _ask(str(prompt), "getpass()", secret=True)


def check(call: str) -> None:
    """Raise LabError if nobody can answer what asks a person."""
    if threading.current_thread() is not threading.main_thread():
        raise LabError(f"{call} asks a person; only the main thread of a cell can.")
    request = ipython_internals.request_of(tracebacks.get_shell().kernel)
    if _stopped is not None and _identity(request) == _stopped:
        raise LabError(STOPPED)
    may = May.read(request.get("metadata", {}).get("label")) if _runs() else May.NOBODY
    if may is not May.ASK:
        raise LabError(refusal(call, may))


def prompt() -> str:
    """Return the prompt at which the main thread waits for a person, "" if it does not."""
    question = _open
    if question is None:
        return ""
    *_, last = question.asked.prompt.strip().split("\n")
    return last or "input()"


def answer(given: Answer) -> int:
    """Take an answer, in the thread of the control channel; return 0 if nothing waits for it."""
    with _lock:
        if _open is None or _open.asked.number != given.number:
            return 0
        _open.answers.put(given)
        return 1


def _ask(text: str, call: str, *, secret: bool = False) -> str:
    global _open, _last, _stopped
    check(call)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    _last += 1
    question = _Question(Asked(_last, text, secret))
    try:
        with _lock:
            _open = question
        tracebacks.get_shell().display_pub.publish({ASKED: encode(question.asked)})
        given = question.answers.get()
    except KeyboardInterrupt:
        _stopped = _identity(ipython_internals.request_of(tracebacks.get_shell().kernel))
        raise
    finally:
        with _lock:
            _open = None
    if given.refused:
        raise LabError(refusal(call, May.FRONT_END))
    # As in a terminal, so that what the rank has printed can be read as a conversation.
    print(text + ("" if secret else given.text or ""))
    if given.text is None:
        raise EOFError
    return given.text


def _identity(request: Any) -> object:
    return (request.get("header") or {}).get("msg_id")
