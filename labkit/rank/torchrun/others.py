"""Give the other workers time to meet the error that one has met.

torchrun ends them all as soon as it sees that one has gone. Which of them have told of the same
error by then would be chance, and more so on a busy machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import psutil

from ... import times

_AT_WORK = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)


def wait(parent: int, have_ended: Callable[[], bool], agent: int = 0) -> None:
    """Wait until the other workers have ended, or none of them can be expected to soon.

    Parameters
    ----------
    parent
        The process id of the workers' parent.
    have_ended
        Tells whether all have ended, as far as they say so.
    agent
        The process id of torchrun, which is no worker: the parent, or another child of it.
    """
    found: dict[int, _Other] = {}
    expected = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - 1
    deadline = time.monotonic() + times.OTHERS_ENDED.seconds()
    while not have_ended() and time.monotonic() < deadline:
        for process in _others(parent, agent):
            found.setdefault(process.pid, _Other(process)).look()
        all_there = len(found) >= expected  # on a busy machine one may still have to be forked
        if all_there and not any(other.may_follow() for other in found.values()):
            return
        time.sleep(times.OTHERS_LOOK)


def _others(parent: int, agent: int) -> list[psutil.Process]:
    try:
        family = psutil.Process(parent).children()
        return [p for p in family if p.pid not in (os.getpid(), agent)]
    except psutil.Error:
        return []


class _Other:
    """Another worker, as the system sees it."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._first = self._last = -1.0  # seconds of processor time
        self._moved = time.monotonic()

    def look(self) -> None:
        try:
            with self._process.oneshot():
                times, status = self._process.cpu_times(), self._process.status()
        except psutil.Error:
            return
        used = times.user + times.system
        if self._first < 0:
            self._first = used
        if used != self._last or status in _AT_WORK:
            self._moved = time.monotonic()
        self._last = used

    def may_follow(self) -> bool:
        """Tell whether it may be on its way to the same error."""
        idle = time.monotonic() - self._moved
        return (
            idle < times.OTHER_IDLE.seconds()
            and self._last - self._first < times.OTHER_COMPUTED.seconds()
        )
