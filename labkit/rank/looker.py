"""Look at this rank's main thread, ten times a second while somebody wants to know.

A look at a rank that works costs one system call. Only when the main thread has not run at all
between two looks is the rest read: whether the process stands still, and what it waits for.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from torch.distributed import distributed_c10d as c10d

from . import calls, cells, idle, record, recorder, waits

log = logging.getLogger("labkit")
#: Seconds between looks.
LOOK_SECONDS = 0.1
#: Seconds that it goes on looking after the last question.
LINGER_SECONDS = 3.0


class Looker:
    """What is known of the main thread.

    Parameters
    ----------
    later
        ``later(seconds, function)`` calls a function later, in the thread that answers.
    """

    def __init__(self, later: Callable[[float, Callable[[], None]], Any]) -> None:
        self._later = later
        self._looking = False
        self._until = 0.0
        self._clock: idle.Clock | None = None
        self._main = -1
        self._since = 0.0
        self._still = False
        self._wait: dict[str, Any] | None = None
        self._tell: Callable[[dict[str, Any]], None] | None = None
        self._known: list[int] = []

    # -- questions --------------------------------------------------------------------------

    def watch(self, known: list[int], tell: Callable[[dict[str, Any]], None]) -> None:
        """Call ``tell(sample)`` once, when the main thread waits for another rank.

        ``known`` is the clock of a wait that the asker has heard of: not told again. A question
        that is still open is answered first, so that nobody keeps waiting for it.
        """
        if self._tell is not None:
            self._tell({"state": "replaced"})
        self._tell, self._known = tell, known
        self._keep_looking()

    def sample(self) -> dict[str, Any]:
        """Say what the main thread does, what it waits for and what this rank has provided."""
        self._keep_looking()
        self._look()
        return self._sample()

    # -- looks ------------------------------------------------------------------------------

    def _keep_looking(self) -> None:
        self._until = time.monotonic() + LINGER_SECONDS
        if not self._looking:
            self._looking = True
            self._tick()

    def _tick(self) -> None:
        if self._tell is None and time.monotonic() > self._until:
            self._looking = False
            self._forget()
            return
        try:
            self._look()
        except Exception:  # a rank that cannot be understood is one that works: never stuck
            log.exception("labkit could not tell what this rank waits for")
            self._forget()
        if self._tell is not None and self._wait is not None and self._stamp() != self._known:
            tell, self._tell = self._tell, None
            tell(self._sample())
        self._later(LOOK_SECONDS, self._tick)

    def _look(self) -> None:
        main = idle.main_clock()
        if main != self._main:  # it has run since the last look
            self._forget()
            self._main, self._since = main, time.monotonic()
            return
        if time.monotonic() - self._since < LOOK_SECONDS / 2:
            return
        clock = idle.read()
        before, self._clock = self._clock, clock
        if not idle.stood_still(before, clock):
            self._still, self._wait = False, None
        elif not self._still:
            self._still = True
            ident = threading.main_thread().ident
            frame = sys._current_frames().get(ident or 0)
            if not waits.other_threads_run_cells(ident):
                self._wait = waits.describe(frame)

    def _forget(self) -> None:
        self._clock, self._wait, self._still = None, None, False

    def _stamp(self) -> list[int]:
        return [] if self._clock is None else [self._clock.main, self._clock.others]

    def _sample(self) -> dict[str, Any]:
        wait = self._wait
        return {
            "status": "ok",
            "state": "waiting" if wait else "computing" if is_busy() else "idle",
            "wait": wait and {**wait, "seconds": round(time.monotonic() - self._since, 1)},
            "stamp": self._stamp(),
            "still": self._still,
            "groups": recorder.groups(),
            "places": sorted({cells.describe(*place)[0] for place in record.places}),
            "made": c10d._world.group_count,
            "me": c10d.get_rank() if c10d.is_initialized() else -1,
        }


def is_busy() -> bool:
    """Tell whether a cell or a function of the notebook runs in the main thread."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return cells.innermost(frame) is not None or calls.running
