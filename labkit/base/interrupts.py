"""Say where an interrupt (the stop button, Ctrl-C) may cut what the notebook's process does.

Python raises KeyboardInterrupt between any two steps of the main thread: with the lock of a future
taken and not given back, with a request sent and its reply not awaited, in a ``finally``. So that
no lab is left half started, half stopped or with ranks that nobody waits for, what changes a lab is
*shielded*: an interrupt is noted there and raised at the end. What takes its time is *cancellable*
inside: :func:`sleep` and :func:`wait` then raise an interrupt that has come."""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any

from . import times

#: Tell the time and let it pass; a test's clock may take their place.
now, pause = time.monotonic, time.sleep

Handler = Callable[[int, FrameType | None], Any]


class _State:
    """What the main thread holds and has noted."""

    depth = 0  #: of ``held``
    previous: Handler | None = None  #: what else would handle an interrupt; None: nothing does
    first: float | None = None  #: when the first interrupt came, of ``now``
    waiting: float | None = None  #: when one came that has not been raised yet
    grace: float | None = None  #: its age in seconds at which a wait raises it; None: none does


_state = _State()


def _note(signum: int, frame: FrameType | None) -> None:
    """Handle SIGINT where something is shielded."""
    came = now()
    if _state.first is None:
        _state.first = came
    if came - _state.first > times.FORCE and _state.previous is not None:
        _state.waiting = None
        _state.previous(signum, frame)
    elif _state.waiting is None:
        _state.waiting = came


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """Shield what is inside from interrupts; raise at the end one that has come.

    It is not raised over an error of what is inside. In other threads than the main one, which
    interrupts do not reach, and where interrupts are ignored, nothing is done. Sections may be
    nested; inside an inner one nothing is cancellable, unless it says so itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, _state.grace = _state.grace, None
    try:
        if _state.depth == 0:
            _state.first = _state.waiting = None
            found = signal.getsignal(signal.SIGINT)
            _state.previous = found if callable(found) else None
            if _state.previous is not None:
                signal.signal(signal.SIGINT, _note)
        _state.depth += 1
    except BaseException:  # it came just before
        _state.grace = before
        raise
    whole = False
    try:
        yield
        whole = True
    finally:
        _state.grace = before
        _state.depth -= 1
        if _state.depth == 0:
            _give_back(whole)


def _give_back(whole: bool) -> None:
    """Make interrupts go where they went before, with the one that was noted first."""
    previous, _state.previous = _state.previous, None
    if previous is None:
        return
    if signal.getsignal(signal.SIGINT) is _note:
        signal.signal(signal.SIGINT, previous)
    if whole and _state.waiting is not None:
        previous(signal.SIGINT, None)


@contextlib.contextmanager
def cancellable(after: float = 0.0) -> Iterator[None]:
    """Make the waits inside raise an interrupt that is ``after`` seconds old or older."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, _state.grace = _state.grace, after
    try:
        yield
    finally:
        _state.grace = before


@contextlib.contextmanager
def unshielded() -> Iterator[None]:
    """Make an interrupt cut what is inside wherever it stands, as if nothing were held.

    For what waits in its own way, as ``input`` does, where a wait could be cancellable.
    """
    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or not _state.depth or _state.previous is None:
        yield
        return
    check()
    signal.signal(signal.SIGINT, _cut)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _note)


def _cut(signum: int, frame: FrameType | None) -> None:
    """Handle SIGINT where what is shielded is released."""
    if _state.first is None:
        _state.first = now()
    if _state.previous is not None:
        _state.previous(signum, frame)


def check() -> None:
    """Raise an interrupt that has come, where this is cancellable."""
    if _state.waiting is None or _state.grace is None or not _state.depth:
        return
    if threading.current_thread() is not threading.main_thread():
        return
    if now() - _state.waiting >= _state.grace:
        _state.waiting = None
        raise KeyboardInterrupt


def has_come() -> bool:
    """Return whether an interrupt has come since the outermost held section began."""
    on_main = threading.current_thread() is threading.main_thread()
    return on_main and bool(_state.depth) and _state.first is not None


def take() -> bool:
    """Return whether an interrupt has come that was not raised; it will not be then."""
    if threading.current_thread() is not threading.main_thread():
        return False
    waiting, _state.waiting = _state.waiting, None
    return bool(_state.depth) and waiting is not None


def sleep(seconds: float) -> None:
    """Sleep; where this is cancellable, raise an interrupt that comes."""
    deadline = now() + seconds
    check()
    while (left := deadline - now()) > 0:
        pause(min(left, times.NOTICE))
        check()


def wait_by(wait: Callable[[float], object], seconds: float) -> bool:
    """Wait by a function that waits for up to so many seconds, as that of a ``threading.Event``;
    tell whether it has returned something that is true.

    Where this is cancellable, raise an interrupt that comes.
    """
    deadline = now() + seconds
    while True:
        check()
        left = max(0.0, deadline - now())
        if wait(min(left, times.NOTICE)):
            return True
        if left <= times.NOTICE:
            check()
            return False


def wait(
    futures: Collection[concurrent.futures.Future[Any]],
    seconds: float,
    return_when: str = concurrent.futures.ALL_COMPLETED,
) -> bool:
    """Wait for futures as ``concurrent.futures.wait`` does; return whether what was awaited is
    there.

    Where this is cancellable, raise an interrupt that comes.
    """

    def part(seconds: float) -> bool:
        done, pending = concurrent.futures.wait(futures, seconds, return_when=return_when)
        return not pending or (bool(done) and return_when != concurrent.futures.ALL_COMPLETED)

    return wait_by(part, seconds)
