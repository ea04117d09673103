"""Look at this rank's threads, ten times a second while somebody wants to know.

A look at a rank that works reads one clock and one frame. Only when the main thread has not run
at all between two looks is the rest read: what else may issue calls, what it waits for and, if
that is another rank, what is on its way. A wait that was told and goes on is looked at less often:
whoever wants to know more of it asks, and gets a look of that moment.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch.distributed as dist

from ...base import times
from ...wire import python_threads
from ...wire.requests import Watched
from ...wire.samples import Issuer, Sample, Wait
from .. import (
    activity,
    asyncio_internals,
    os_threads,
    spare_files,
    steady,
    tracebacks,
    user_input,
)
from ..torch_internals import connecting, groups, names
from ..torch_internals import frames as torch_frames
from . import (
    blocked_call,
    device,
    device_wait,
    flight_recorder,
    issuers,
    p2p_record,
    store_waits,
    traffic,
)

log = logging.getLogger("labkit")


class MainThread:
    """Tell whether the main thread has moved between two looks at it."""

    def __init__(self) -> None:
        self._clock = -1
        #: in which call it asks again and again whether something has come; None: in none
        self._polls_at: object = None
        self.since = 0.0  #: when it was seen to move last

    def moved(self, frame: FrameType | None) -> bool:
        """Return whether it has run since the look before.

        One that only asks again and again whether the others have come counts as standing still,
        as much of the processor as that takes (a ``FileStore`` reads a file a hundred times a
        second): torch does so in a store, when a group or an RPC agent is made, NCCL when it
        connects with the others in the first call, labkit when a GPU is to end.
        """
        clock = os_threads.main_clock()
        ran, self._clock = clock - self._clock, clock
        before, self._polls_at = self._polls_at, _polls_at(frame, ran)
        if self._polls_at is None:
            has_moved = bool(ran) or before is not None or os_threads.main_runs()
        else:
            has_moved = self._polls_at != before
        if has_moved:
            self.since = steady.now()
        return has_moved

    def polls(self) -> bool:
        """Return whether it asks again and again whether something has come."""
        return self._polls_at is not None

    def stamp(self) -> tuple[int, ...]:
        """Return numbers that stay the same as long as it does not move."""
        if self._polls_at is None:
            return (self._clock,)
        return (0, groups.count_made(), store_waits.calls, *device.progress())


def _polls_at(frame: FrameType | None, ran: int) -> object:
    """Return what stays the same for as long as a thread polls in one call, None if it does not.

    Its frame does not stay the same: Python makes a new object of it at each look.
    """
    if frame is not None and (_meets(frame) or device_wait.holds(frame)):
        return (frame.f_code, frame.f_lasti, groups.count_made(), store_waits.calls)
    if ran <= times.POLLING_NANOSECONDS and device_wait.is_wait(frame):
        return "device"
    return None


def _meets(frame: FrameType) -> bool:
    """Return whether a thread asks others in C++, through a store: nothing else runs there."""
    return (
        blocked_call.find_meeting(frame) is not None
        or store_waits.is_wait(frame)
        or torch_frames.is_rpc_start(frame)
    )


class Sampler:
    """What is known of this rank.

    Parameters
    ----------
    later
        ``later(seconds, function)`` calls a function later, in the thread that answers.
    """

    def __init__(self, later: Callable[[float, Callable[[], None]], Any]) -> None:
        self._later = later
        self._is_on = False
        self._until = 0.0
        self._main = MainThread()
        self._sampled: dict[str, float] = {}  # what -> when
        self._wait: Wait | None = None
        self._clock: os_threads.Clock | None = None
        self._traffic = traffic.Looks()
        self._threads = issuers.Threads()
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
        self._go_on()

    def sample(self) -> Sample:
        """Return what the main thread does, what it waits for and what this rank has provided."""
        self._go_on()
        self._look()
        if not is_busy():  # its event loop may run, and threads of it live
            self._look_at_threads()
        if self._wait is None:  # else the look just now has
            self._look_at_traffic()
        return self._sample()

    # -- looks ------------------------------------------------------------------------------

    def _go_on(self) -> None:
        self._until = steady.now() + times.LOOKS_LINGER
        if not self._is_on:
            self._is_on = True
            self._tick()

    def _tick(self) -> None:
        over = steady.now() - self._until
        idle = over > 0 and not is_busy()
        if over > 0 and (self._tell is None or (idle and over > times.QUESTION_DROPPED)):
            self._is_on = False
            self._forget()
            return
        try:
            if idle:  # it waits for the next cell, of which it will tell
                self._forget()
                return
            with spare_files.lent_if_full():
                self._look()
            if self._tell is not None and self._wait is not None and self._stamp() != self._known:
                found = self._sample()
                tell, self._tell = self._tell, None
                tell(Watched(found))
        except Exception:  # a rank that cannot be understood is one that works: never stuck
            log.exception("labkit could not tell what this rank waits for")
            self._forget()
        finally:
            told = self._wait is not None and self._stamp() == self._known
            self._later(times.KNOWN_WAIT_LOOK if told else times.MAIN_THREAD_LOOK, self._tick)

    def _look(self) -> None:
        frame = main_frame()
        if self._main.moved(frame):
            self._forget()
            return
        if steady.now() - self._main.since < times.MAIN_THREAD_LOOK / 2:
            return
        self._look_at_threads()
        self._wait = self._describe(frame)
        if self._wait is not None:
            self._look_at_traffic()

    def _look_at_threads(self) -> None:
        if self._is_due("threads"):
            self._threads.look()

    def _look_at_traffic(self) -> None:
        if self._is_due("traffic"):
            self._traffic.look()

    def _is_due(self, what: str) -> bool:
        """Return whether the last look at something is some time ago: two of one moment say nothing
        of what moves."""
        now = steady.now()
        if due := now - self._sampled.get(what, 0.0) >= times.MAIN_THREAD_LOOK / 2:
            self._sampled[what] = now
        return due

    def _describe(self, frame: FrameType | None) -> Wait | None:
        """Return what a main thread that stands still waits for, None for no other rank."""
        if frame is None or not is_busy():
            return None
        if user_input.prompt():  # who gives an answer lets it go on
            return None
        if device_wait.is_wait(frame):
            return device_wait.describe()
        if device_wait.holds(frame):
            return device_wait.describe(frame)
        if _awaits(frame):
            return _awaiting()
        wait = blocked_call.describe(frame)
        if wait is not None:
            blind = torch_frames.is_blind(frame) and not self._main.polls()
            if blind and self._computes():
                return None
            if wait.kind == "thread" and self._threads.is_alone():
                doubt = "rank {rank} waits for something in its own process"
                return dataclasses.replace(wait, doubt=doubt)
            return wait
        if blocked_call.is_known(frame) or os_threads.waits_for_time():
            return None
        if device_wait.is_pending():
            return device_wait.describe(frame)
        if os_threads.waits_for_lock() and not self._computes():
            where, line = tracebacks.innermost(frame) or ("", "")
            doubt = "rank {rank} waits for a lock, or for something in C"
            return Wait("thread", where=where, line=line, doubt=doubt)
        return None

    def _computes(self) -> bool:
        """Return whether threads that are not Python's compute, for the main one that waits."""
        clock = os_threads.read()
        before, self._clock = self._clock, clock
        return not os_threads.stood_still(before, clock)

    def _forget(self) -> None:
        self._wait, self._clock = None, None

    def _stamp(self) -> tuple[int, ...]:
        """Return numbers that stay the same as long as nothing that waits has run."""
        return (*self._main.stamp(), *self._threads.stamp())

    def _sample(self) -> Sample:
        wait = self._wait
        if wait is not None:
            wait = dataclasses.replace(wait, seconds=round(steady.now() - self._main.since, 1))
        joined = dist.is_initialized()
        state = "waiting" if wait else "computing" if is_busy() else "idle"
        others: tuple[Issuer, ...] = ()
        if state != "computing":  # one that computes can provide anything anyway
            others = (*self._threads.issuers(), *issuers.others())
        return Sample(
            rank=dist.get_rank() if joined else -1,
            state=state,
            still=self._traffic.is_still(),
            wait=wait,
            stamp=self._stamp(),
            groups=flight_recorder.groups(),
            places=_places(),
            made=groups.count_made(),
            connecting=connecting.is_under_way(),
            joined=joined,
            issuers=others,
            doubts=names.blindness(),
        )


def _awaits(frame: FrameType) -> bool:
    """Return whether a cell awaits something: the main thread is in its event loop."""
    own = python_threads.frames(frame)
    return activity.in_cell and all(python_threads.package(f.f_code.co_filename) for f in own)


def _awaiting() -> Wait | None:
    """Describe what a cell awaits; None if it may be a time that comes by itself."""
    if activity.loop is None or asyncio_internals.sleeps(activity.loop):
        return None
    return Wait("thread", doubt="the cell of rank {rank} awaits something")


def _places() -> frozenset[tuple[str, str]]:
    """Return where calls waited last, and in which group."""
    noted = p2p_record.places.copy()  # the main thread adds to it
    return frozenset((tracebacks.describe(file, line)[0], group) for file, line, group in noted)


def main_frame() -> FrameType | None:
    """Return the frame in which the main thread is."""
    return torch_frames.skip(sys._current_frames().get(threading.main_thread().ident or 0))


def is_busy() -> bool:
    """Return whether the main thread runs anything: a cell, a function of a notebook, a task."""
    if activity.is_running():
        return True
    own = python_threads.frames(main_frame())
    return any(python_threads.package(f.f_code.co_filename) == "" for f in own)
