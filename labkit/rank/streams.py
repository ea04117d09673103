"""Let a rank flush its output as often as it likes.

Each flush of ipykernel's streams is a message and waits for another thread: 160 µs here and 400 µs
in the notebook's kernel. A bar that is flushed with each of half a million steps took 70 s so, and
the end of its output came too late to be shown.

The first flushes are served at once, so what a rank says last before it dies is seen. One that
flushes thousands of times in a second is served every ``INTERVAL`` instead, as one that never
flushes is, and before anything else leaves the rank: results, pictures, the end of the cell.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ipykernel.iostream import OutStream

from ..wire.legible import packer

#: Flushes that are served at once in a row, and how many more of them each second.
BURST, RATE = 1000, 100
#: Seconds after which text leaves the rank that nobody flushes.
INTERVAL = 0.1


class Flushing:
    """Decides about the flushes of one stream; takes the place of its ``flush``."""

    def __init__(self, stream: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._stock: Callable[[], None] = stream.flush
        self._thread: threading.Thread = stream.pub_thread.thread
        self._clock = clock
        self._left, self._seen = float(BURST), clock()
        self.owes = False  #: a flush was asked for and is still to come

    def __call__(self) -> None:
        """Flush now, or leave it to the stream, which does so after ``INTERVAL`` by itself."""
        now = self._clock()
        self._left = min(BURST, self._left + RATE * (now - self._seen))
        self._seen = now
        if self._left < 1 and self._thread.is_alive():  # it is not in a process forked from here
            self.owes = True
        else:
            self._left -= 1
            self.settle(always=True)

    def settle(self, *, always: bool = False) -> None:
        """Flush now if a flush is still to come."""
        if always or self.owes:
            self.owes = False
            self._stock()


def install(session: Any = None) -> None:
    """Count the flushes of stdout and stderr from now on, where they are ipykernel's.

    Let ``session``, which packs this rank's messages, pack any text.
    """
    if session is not None and session.packer in ("json", "orjson"):
        session.pack = packer(session.pack)
    streams = [s for s in (sys.stdout, sys.stderr) if type(s) is OutStream and s.pub_thread]
    for stream in streams:
        if not isinstance(stream.flush, Flushing):
            stream.flush_interval = INTERVAL
            stream.flush = Flushing(stream)  # type: ignore[method-assign]
            _settle_before_others(stream)


def _settle_before_others(stream: Any) -> None:
    """Let what a stream owes leave before anything that other threads than its own send."""
    publisher = stream.pub_thread
    stock = publisher.send_multipart

    def send_multipart(*args: Any, **named: Any) -> Any:
        if threading.current_thread() is not publisher.thread:
            stream.flush.settle()
        return stock(*args, **named)

    publisher.send_multipart = send_multipart
