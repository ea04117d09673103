"""Ask the user at the notebook from the code of a cell: ``input()``, ``getpass``, a debugger.

The input request goes out as a display, behind all that this rank has printed; the answer comes on
the control channel, whose thread is free while the main thread waits here.
"""

from __future__ import annotations

import builtins
import getpass
import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import Any

from ..base.errors import LabError
from ..wire.encoding import encode
from ..wire.requests import INPUT_REQUEST, GiveInput, InputRequest, May, refusal
from . import activity, ipython_internals, tracebacks

#: Said after the stop button: a debugger that catches the interrupt would only ask again.
STOPPED = "The cell was stopped while it asked."


class _Open:
    """An input request that is open: the main thread waits for the answer."""

    def __init__(self, asked: InputRequest) -> None:
        self.asked = asked
        self.answers: queue.SimpleQueue[GiveInput] = queue.SimpleQueue()


_lock = threading.Lock()
_open: _Open | None = None
#: Number of the last input request.
_last = 0
#: The cell or call that was stopped while it asked, by the id of its message.
_stopped: object = None
#: The process that this was for: one forked from it has neither channel.
_home = 0


def install(kernel: Any) -> None:
    """Make what reads from the user ask the notebook's."""
    global _home
    _home = os.getpid()
    ipython_internals.take_input(kernel, read, read_secret)
    # Also where ipykernel puts nothing in their place: in a call of the notebook, in a thread.
    builtins.input = read
    getpass.getpass = read_secret


def read(prompt: object = "", /) -> str:
    """Return what the user answers, as ``input`` does."""
    return _ask(str(prompt), "input()")


def read_secret(prompt: str = "Password: ", stream: object = None, **named: object) -> str:
    """Return what the user answers and nobody sees, as ``getpass.getpass`` does."""
    return _ask(str(prompt), "getpass()", secret=True)


def check(call: str) -> None:
    """Raise LabError if nobody can answer what asks the user."""
    if threading.current_thread() is not threading.main_thread() or os.getpid() != _home:
        raise LabError(f"{call} asks the user, which only the main thread of a rank can do.")
    request = _request()
    if _stopped is not None and _identity(request) == _stopped:
        raise LabError(STOPPED)
    may = (
        May.read(request.get("metadata", {}).get("label")) if activity.is_running() else May.NOBODY
    )
    if may is not May.ASK:
        raise LabError(refusal(call, may))


def prompt() -> str:
    """Return the prompt at which the main thread waits for the user, "" if it does not."""
    opened = _open
    if opened is None:
        return ""
    *_, last = opened.asked.prompt.strip().split("\n")
    return last or "input()"


def answer(given: GiveInput) -> int:
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
    opened = _Open(InputRequest(_last, text, secret))
    try:
        with _lock:
            _open = opened
        tracebacks.get_shell().display_pub.publish({INPUT_REQUEST: encode(opened.asked)})
        given = opened.answers.get()
    except KeyboardInterrupt:
        _stopped = _identity(_request())
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


def _request() -> Mapping[str, Any]:
    """Return the request that the main thread serves."""
    return tracebacks.get_shell().kernel.get_parent("shell") or {}


def _identity(request: Mapping[str, Any]) -> object:
    return (request.get("header") or {}).get("msg_id")
