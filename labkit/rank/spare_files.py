"""Keep some file descriptors for labkit, for when a cell has used up all that a rank may have.

A look at a rank opens files of ``/proc``, and a process group sockets: without a descriptor the
rank could neither say that it has ended its cell nor be freed, and every later cell would wait.
What is kept has low numbers, so that it still counts where a cell has lowered the limit.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_kept: list[int] = []
_count = 0
#: How many borrow them now: the main thread, and that of the control channel.
_borrowers = 0
_lock = threading.Lock()


def keep(count: int) -> None:
    """Keep so many descriptors from now on, as far as there are any."""
    global _count
    _count = count
    with _lock:
        _fill()


def _fill() -> None:
    with contextlib.suppress(OSError):  # taken meanwhile: perhaps there is room the next time
        while len(_kept) < _count:
            _kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


@contextlib.contextmanager
def lent() -> Iterator[None]:
    """Give what is kept to whoever opens something meanwhile."""
    global _borrowers
    with _lock:
        _borrowers += 1
        while _kept:
            os.close(_kept.pop())
    try:
        yield
    finally:
        with _lock:
            _borrowers -= 1
            if not _borrowers:
                _fill()


def lent_to(function: Callable[P, R]) -> Callable[P, R]:
    """Lend them to a function."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with lent():
            return function(*args, **kwargs)

    return call


def lent_if_full() -> contextlib.AbstractContextManager[None]:
    """Lend them to a short look, if there is no other descriptor: this costs a microsecond."""
    try:
        os.close(os.dup(0))
    except OSError:
        return lent()
    return contextlib.nullcontext()
