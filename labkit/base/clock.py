"""Tell the time and wait: for some seconds, for futures, or until something is so.

What decides by time is given a clock, so that a test can give it one whose time jumps
(``tests/support/virtual_clock.py``).
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Collection
from typing import Any

from . import interrupts, times


class Clock:
    """The time of this process, and waits that an interrupt ends where that is cancellable."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._heard = 0  # how many times there was news

    def now(self) -> float:
        """Return the time in seconds, from an arbitrary start."""
        return interrupts.now()

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        interrupts.sleep(seconds)

    def wait(
        self,
        futures: Collection[concurrent.futures.Future[Any]],
        seconds: float,
        return_when: str = concurrent.futures.ALL_COMPLETED,
    ) -> bool:
        """Wait for futures as ``concurrent.futures.wait`` does; return whether they are there."""
        return interrupts.wait(futures, seconds, return_when)

    def wait_by(self, wait: Callable[[float], object], seconds: float) -> bool:
        """Wait by a function that waits for up to so many seconds, as a ``threading.Event`` has
        one; return whether it has returned something that is true."""
        return interrupts.wait_by(wait, seconds)

    def wait_for(self, condition: Callable[[], object], seconds: float) -> bool:
        """Wait until a condition holds, for up to some seconds; return whether it does.

        It is looked at after each :meth:`notify`, and ten times a second besides: what it depends
        on may give no notice.
        """
        deadline = self.now() + seconds
        while True:
            interrupts.check()
            with self._news:
                heard = self._heard  # news that comes while the condition is looked at counts
            if condition():
                return True
            left = deadline - self.now()
            if left <= 0:
                return False
            with self._news:
                if self._heard == heard:
                    self._news.wait(min(left, times.NOTICE))

    def notify(self) -> None:
        """Make all waits look at their conditions again; from any thread."""
        with self._news:
            self._heard += 1
            self._news.notify_all()


#: For what has no clock of its own.
SYSTEM = Clock()
