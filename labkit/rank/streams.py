"""Let a rank flush its output as often as it likes, and wait for none that has nothing to send.

Each flush of ipykernel's streams is a message and waits for another thread: a bar that is flushed
with each of half a million steps took 70 s. The first flushes are served at once, so what a rank
says last before it dies is seen; after thousands in a second one is served every
``times.FLUSHED``, and before anything else leaves the rank. Where nothing was written since the
last flush, as at the end of most requests, there is nothing to wait for.
"""

from __future__ import annotations

import fcntl
import sys
import termios
import threading
import time
from collections.abc import Callable
from typing import Any

from ipykernel.iostream import OutStream

from ..base import times
from ..wire.texts import packer
from . import os_threads, steady

#: Flushes that are served at once in a row, and how many more of them each second.
BURST, RATE = 1000, 100


class Tap:
    """Where what C code writes to a descriptor comes in: a pipe that a thread of ipykernel reads.

    Parameters
    ----------
    descriptor
        The end of the pipe that is written to.
    thread
        The thread that reads the other end and gives it to the stream.
    """

    def __init__(self, descriptor: int, thread: threading.Thread) -> None:
        self._descriptor = descriptor
        self._thread = thread
        self._clock = time.pthread_getcpuclockid(thread.ident or 0)

    def mark(self) -> int | None:
        """Return a number that is another one when the thread has read something since; None where
        something waits to be read, or that cannot be told."""
        try:
            waiting = fcntl.ioctl(self._descriptor, termios.FIONREAD, b"\0\0\0\0")
            return None if any(waiting) else time.clock_gettime_ns(self._clock)
        except OSError:  # the descriptor is another one's now, or the thread has ended
            return None

    def waits(self) -> bool:
        """Return whether the thread waits for more: it has given what it has read to the stream."""
        return os_threads.reads(self._thread.native_id)

    def settle(self) -> None:
        """Wait until the thread has given all that is there to the stream, and waits for more."""
        deadline = steady.now() + times.C_OUTPUT_READ.seconds()
        while steady.now() < deadline:
            time.sleep(times.C_OUTPUT_LOOK)
            if self.waits() and self.mark() is not None:
                return


class Flushing:
    """Decides about the flushes of one stream; takes the place of its ``flush``.

    Parameters
    ----------
    tap
        Where what C code writes comes in, None if that is not for the stream.
    """

    def __init__(
        self, stream: Any, clock: Callable[[], float] = steady.now, tap: Tap | None = None
    ) -> None:
        self._original: Callable[[], None] = stream.flush
        self._thread: threading.Thread = stream.pub_thread.thread
        self._clock = clock
        self._left, self._seen = float(BURST), clock()
        self._tap = tap
        # Not a count: threads would lose some. Another object than before: another state.
        self._written: object = object()
        self._flushed: tuple[object, int | None] = (None, None)
        self.owes = False  #: a flush was asked for and is still to come

    def note_write(self) -> None:
        """Record that something was written."""
        self._written = object()

    def __call__(self) -> None:
        """Flush now, or leave it to the stream, which does so after ``times.FLUSHED`` by itself."""
        if self._has_nothing():
            return
        now = self._clock()
        self._left = min(BURST, self._left + RATE * (now - self._seen))
        self._seen = now
        if self._left < 1 and self._thread.is_alive():  # it is not in a process forked from here
            self.owes = True
        else:
            self._left -= 1
            self.settle(always=True)

    def now(self) -> None:
        """Flush now, however often it was asked for."""
        if not self._has_nothing():
            self.settle(always=True)

    def settle(self, *, always: bool = False) -> None:
        """Flush now if a flush is still to come."""
        if always or self.owes:
            self.owes = False
            state = self._state()
            if self._tap is not None and not self._tap.waits():
                state = state[0], None  # it may have read what it has not given yet
            self._original()
            # Not before: another thread that flushes now has to wait for this one's text as well.
            self._flushed = state

    def wait_for_c(self) -> None:
        """Wait until what C code has written until now is written to the stream."""
        if self._tap is not None:
            mark = self._tap.mark()
            if mark is None or mark != self._flushed[1]:
                self._tap.settle()

    def _state(self) -> tuple[object, int | None]:
        return self._written, 0 if self._tap is None else self._tap.mark()

    def _has_nothing(self) -> bool:
        state = self._state()
        return not self.owes and state[1] is not None and state == self._flushed


#: The streams of this process whose flushes are counted.
_streams: list[Any] = []
#: Another object when something has been sent to the notebook since.
_sent: object = object()


def install(session: Any = None) -> None:
    """Count the flushes of stdout and stderr from now on, where they are ipykernel's.

    Let ``session``, which packs this rank's messages, pack any text.
    """
    if session is not None and session.packer in ("json", "orjson"):
        session.pack = packer(session.pack)
    found: list[tuple[int, Any]] = [(1, sys.stdout), (2, sys.stderr)]
    for descriptor, stream in found:
        own = type(stream) is OutStream and stream.pub_thread
        if own and not isinstance(stream.flush, Flushing):
            stream.flush_interval = times.FLUSHED
            stream.flush = Flushing(stream, tap=_tap(stream, descriptor))
            _note_writes(stream)
            _settle_before_others(stream)
            _streams.append(stream)


def flush() -> None:
    """Make all that was written leave this rank, by C code too."""
    for stream in _streams:
        stream.flush.wait_for_c()
        stream.flush.now()


def sent() -> object:
    """Return another object than before if anything has left this rank since: text, or others."""
    return _sent


def _tap(stream: Any, descriptor: int) -> Tap | None:
    thread = getattr(stream, "watch_fd_thread", None)
    return None if thread is None else Tap(descriptor, thread)


def _note_writes(stream: Any) -> None:
    original, note = stream.write, stream.flush.note_write

    def write(string: str) -> int | None:
        try:
            written: int | None = original(string)
        finally:
            note()
        return written

    stream.write = write


def _settle_before_others(stream: Any) -> None:
    """Make what a stream owes leave before anything that other threads than its own send."""
    publisher = stream.pub_thread
    original = publisher.send_multipart

    def send_multipart(*args: Any, **named: Any) -> Any:
        global _sent
        _sent = object()
        if threading.current_thread() is not publisher.thread:
            stream.flush.settle()
        return original(*args, **named)

    publisher.send_multipart = send_multipart
