"""Run in a side thread what blocks in C++, deaf to interrupts and to the end of connections.

Whoever called it waits for that thread: in Python, which can be interrupted, or told to give up.
The thread goes on until its own time limit, and what it does is nobody's.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any


class Attempt:
    """A call that a side thread makes."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function
        self.value: Any = None
        #: Gets None when the call is over, or its error. Its ``get`` is one call of C, which
        #: leaves its caller's frame on top of the stack.
        self.ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run(self) -> None:
        """Make the call."""
        assert self._function is not None
        try:
            self.value = self._function()
        except BaseException as error:
            self.ended.put(error)
        else:
            self.ended.put(None)
        finally:
            self._function = None  # with what it holds


def begin(attempt: Attempt, name: str) -> None:
    """Make a call in a thread of its own."""
    threading.Thread(target=attempt.run, name=name, daemon=True).start()


def begin_soon(attempt: Attempt) -> None:
    """Make a call in a thread that has made others: a fifth of the time that a new one takes."""
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.calls.put(attempt)


class _Worker:
    """A thread that makes one call after another."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Attempt] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="labkit wait", daemon=True).start()

    def _run(self) -> None:
        while True:
            self.calls.get().run()
            _idle.append(self)


_idle: list[_Worker] = []
os.register_at_fork(after_in_child=_idle.clear)  # no thread comes along
