"""Tell whether a process stands still: no thread of it that matters has used the processor."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import NamedTuple

from ..torch_internals.threads import POLLING, RUNNING, STORE

TASKS = "/proc/self/task"
#: ZeroMQ's threads carry the answer to the very question; torch's store serves other ranks.
CARRIERS = ("ZMQ", STORE)
#: Where gloo's polling thread has no name, so many nanoseconds of other threads do not count.
GRAIN = 50_000_000


class Clock(NamedTuple):
    """Processor time used so far, in nanoseconds. Equal clocks: nothing has run in between."""

    main: int  #: by the main thread
    others: int  #: by threads that are not Python's: gloo's, OpenMP's
    runs: bool  #: one of those is on the processor or waits for it right now
    polls: bool = False  #: so does gloo's polling thread


def main_clock() -> int:
    """Read the main thread's processor time: one system call."""
    ident = threading.main_thread().ident
    assert ident is not None
    if not hasattr(time, "pthread_getcpuclockid"):  # macOS has none
        return time.process_time_ns()
    return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))


def read() -> Clock:
    """Read the clocks of all threads that matter.

    Left out are Python's threads other than the main one (the engine's own: they answer this
    question), ZeroMQ's and the store's, and the time of gloo's polling one.
    """
    if not sys.platform.startswith("linux"):
        return Clock(main_clock(), 0, False)
    python = {t.native_id for t in threading.enumerate()}
    main = os.getpid()  # threading keeps the parent's number after a fork
    others, runs, polls = 0, False, False
    names = set()
    for task in os.listdir(TASKS):
        if int(task) in python - {main}:
            continue
        try:
            stat = _read(f"{TASKS}/{task}/stat")
            name, _, rest = stat.partition("(")[2].rpartition(")")
            names.add(name)
            if name.startswith(CARRIERS):
                continue
            awake = rest.split()[0] in "RD"
            if name == POLLING:
                polls = polls or awake
                continue
            runs = runs or awake
            if int(task) != main:
                others += _used(task, rest)
        except OSError:  # it has just ended
            runs = True
    if RUNNING in names and POLLING not in names:
        others //= GRAIN
    return Clock(main_clock(), others, runs, polls)


def _used(task: str, stat: str) -> int:
    try:
        return int(_read(f"{TASKS}/{task}/schedstat").split()[0])
    except OSError:  # a kernel without schedstat: hundredths of a second
        fields = stat.split()
        return (int(fields[11]) + int(fields[12])) * 10_000_000


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def stood_still(before: Clock | None, now: Clock) -> bool:
    """Tell whether nothing has run between two readings and nothing runs now.

    The polling thread may be awake at one of the two by chance.
    """
    if before is None or now.runs or (before.polls and now.polls):
        return False
    return (before.main, before.others) == (now.main, now.others)
