"""Look at this rank's main thread, ten times a second while somebody wants to know.

A look at a rank that works reads one clock and one frame. Only when the main thread has not run
at all between two looks is the rest read: whether the process stands still, and what it waits for.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch.distributed as dist

from ...wire.requests import Watched
from ...wire.samples import Sample, Wait
from .. import calls, tracebacks
from ..torch_internals import groups
from . import blocked_call, cpu_clock, flight_recorder, p2p_record

log = logging.getLogger("labkit")
#: Seconds between looks.
LOOK_SECONDS = 0.1
#: Share of the time that a thread may use and still only poll.
MEETING_SHARE = 0.2
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
        self._clock: cpu_clock.Clock | None = None
        self._main = -1
        self._since = 0.0
        self._still = False
        self._wait: Wait | None = None
        self._tell: Callable[[Watched], None] | None = None
        self._known: tuple[int, ...] = ()

    # -- questions --------------------------------------------------------------------------

    def watch(self, known: tuple[int, ...], tell: Callable[[Watched], None]) -> None:
        """Call ``tell`` with a sample once, when the main thread waits for another rank.

        ``known`` is the clock of a wait that the asker has heard of: not told again. A question
        that is still open is answered first, so that nobody keeps waiting for it.
        """
        if self._tell is not None:
            self._tell(Watched(None))
        self._tell, self._known = tell, known
        self._keep_looking()

    def sample(self) -> Sample:
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
            if self._tell is not None and self._wait is not None and self._stamp() != self._known:
                found = self._sample()
                tell, self._tell = self._tell, None
                tell(Watched(found))
        except Exception:  # a rank that cannot be understood is one that works: never stuck
            log.exception("labkit could not tell what this rank waits for")
            self._forget()
        finally:
            self._later(LOOK_SECONDS, self._tick)

    def _look(self) -> None:
        main = cpu_clock.main_clock()
        ran, self._main = main - self._main, main
        frame = main_frame()
        if blocked_call.find_maker(frame) is not None:
            self._look_at_meeting(frame, ran)
            return
        if ran:
            self._forget()
            self._since = time.monotonic()
            return
        if time.monotonic() - self._since < LOOK_SECONDS / 2:
            return
        clock = cpu_clock.read()
        before, self._clock = self._clock, clock
        if not cpu_clock.stood_still(before, clock):
            self._still, self._wait = False, None
        elif not self._still:
            self._still = True
            if not blocked_call.other_threads_run_cells(threading.main_thread().ident):
                self._wait = blocked_call.describe(frame)

    def _look_at_meeting(self, frame: FrameType | None, ran: int) -> None:
        """See whether a thread that has run for ``ran`` nanoseconds only asks, again and again,
        whether the others have come to make a group: torch polls there."""
        spot = cpu_clock.Clock(id(frame), frame.f_lasti if frame else 0, False)
        if spot != self._clock or ran > MEETING_SHARE * LOOK_SECONDS * 1e9:
            self._forget()
            self._clock, self._since = spot, time.monotonic()
        elif not self._still:
            self._still, self._wait = True, blocked_call.describe(frame)

    def _forget(self) -> None:
        self._clock, self._wait, self._still = None, None, False

    def _stamp(self) -> tuple[int, ...]:
        """Return numbers that stay the same as long as nothing has run."""
        if self._clock is None:
            return (self._main,)
        return self._clock.main, self._clock.others

    def _sample(self) -> Sample:
        wait = self._wait
        if wait is not None:
            wait = dataclasses.replace(wait, seconds=round(time.monotonic() - self._since, 1))
        joined = dist.is_initialized()
        return Sample(
            rank=dist.get_rank() if joined else -1,
            state="waiting" if wait else "computing" if is_busy() else "idle",
            still=self._still,
            wait=wait,
            stamp=self._stamp(),
            groups=flight_recorder.groups(),
            places=_places(),
            made=groups.count_made(),
            joined=joined,
        )


def _places() -> frozenset[tuple[str, str]]:
    """Return where calls waited last, and in which group."""
    return frozenset(
        (tracebacks.describe(file, line)[0], group) for file, line, group in p2p_record.places
    )


def main_frame() -> FrameType | None:
    """Return the frame in which the main thread is."""
    return sys._current_frames().get(threading.main_thread().ident or 0)


def is_busy() -> bool:
    """Tell whether a cell or a function of the notebook runs in the main thread."""
    frame = main_frame()
    return tracebacks.innermost(frame) is not None or calls.running
