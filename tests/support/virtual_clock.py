"""A clock whose time jumps: what waits on it waits in no time, and things happen at a time."""

from __future__ import annotations

import concurrent.futures
import heapq
import itertools
from collections.abc import Callable, Collection
from typing import Any

from labkit.base.clock import Clock

#: A real wait ends a little after its time, too.
LATE = 1e-9


class VirtualClock(Clock):
    """Time that passes in waits only, and stops at each thing that is to happen."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def at(self, seconds: float, happen: Callable[[], object]) -> None:
        """Make something happen at a time; it may raise an error, as an interrupt does."""
        heapq.heappush(self._events, (seconds, next(self._numbers), happen))

    def press_at(self, seconds: float) -> None:
        """Make somebody press stop at a time, in a wait that is cancellable."""

        def press() -> None:
            raise KeyboardInterrupt

        self.at(seconds, press)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.wait_for(lambda: False, seconds)

    def wait(
        self,
        futures: Collection[concurrent.futures.Future[Any]],
        seconds: float,
        return_when: str = concurrent.futures.ALL_COMPLETED,
    ) -> bool:
        def are_there() -> bool:
            done = [future.done() for future in futures]
            return all(done) or (return_when != concurrent.futures.ALL_COMPLETED and any(done))

        return self.wait_for(are_there, seconds)

    def wait_by(self, wait: Callable[[float], object], seconds: float) -> bool:
        return self.wait_for(lambda: wait(0), seconds)

    def wait_for(self, condition: Callable[[], object], seconds: float) -> bool:
        end = self.time + seconds
        while not condition():
            if self._events and self._events[0][0] <= end:
                when, _, happen = heapq.heappop(self._events)
                self.time = max(self.time, when)
                happen()
            else:
                assert end < float("inf"), "nothing will ever end this wait"
                self.time = max(self.time, end + LATE)
                return False
        return True
