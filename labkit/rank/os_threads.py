"""Ask the system about this process's threads: their processor time, and where they stand.

In which system call a thread is, Linux alone says; elsewhere nothing is known.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ..base import times

TASKS = "/proc/self/task"
#: Torch's thread that serves the store to other ranks.
STORE = "pt_tcpstore"
#: gloo's transport wakes up every few milliseconds, data or not. Data keeps it running.
POLLING = "gloo_tcp_loop"
#: Those of gloo's threads that run the collectives.
RUNNING = "pt_gloo_runloop"
#: NCCL's threads that look at the clock now and then, whether there is work or not.
WATCHING = ("pt_nccl_watchdg", "pt_nccl_heartbt")
#: ZeroMQ's threads carry the answer to the very question; torch's store serves other ranks;
#: NCCL's look at the clock.
CARRIERS = ("ZMQ", STORE, *WATCHING)


class Clock(NamedTuple):
    """Processor time used so far, in nanoseconds."""

    main: int  #: by the main thread
    others: int  #: by threads that are not Python's: OpenMP's, autograd's
    runs: bool  #: one of those is on the processor or waits for it right now


class Carriers(NamedTuple):
    """Gloo's threads at one moment."""

    carried: int  #: processor time of those that run collectives, nanoseconds
    runs: bool  #: one of those is on the processor or waits for it
    #: those that move data between sockets and memory: processor time, and whether it is awake;
    #: by the thread's number
    movers: Mapping[int, tuple[int, bool]]


def main_clock() -> int:
    """Read the main thread's processor time: one system call."""
    ident = threading.main_thread().ident
    assert ident is not None
    if not hasattr(time, "pthread_getcpuclockid"):  # macOS has none
        return time.process_time_ns()
    return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))


def main_runs() -> bool:
    """Return whether the main thread is on the processor or waits for it: a thread that was woken
    and has not run yet waits for nobody."""
    if not sys.platform.startswith("linux"):
        return False
    stat = _read(f"{TASKS}/{os.getpid()}/stat")
    return stat.rpartition(")")[2].split()[0] == "R"


def read() -> Clock:
    """Read the clocks of all threads that matter.

    Left out are Python's threads other than the main one (each is looked at by its frames),
    ZeroMQ's, the store's, NCCL's watchdog and gloo's polling one.
    """
    if not sys.platform.startswith("linux"):
        return Clock(main_clock(), 0, False)
    python = {t.native_id for t in threading.enumerate()}
    main = os.getpid()  # threading keeps the parent's number after a fork
    others, runs = 0, False
    for task, _, rest in _threads(lambda name: not name.startswith((*CARRIERS, POLLING))):
        if task in python - {main}:
            continue
        runs = runs or rest.split()[0] in "RD"
        if task != main:
            others += _used(str(task), rest)
    return Clock(main_clock(), others, runs)


def carriers() -> Carriers:
    """Inspect gloo's threads, which run its collectives and move their data."""
    carried, runs, movers = 0, False, dict[int, tuple[int, bool]]()
    if sys.platform.startswith("linux"):
        for task, name, rest in _threads(lambda name: name.startswith((RUNNING, POLLING))):
            awake = rest.split()[0] in "RD"
            if name.startswith(RUNNING):
                carried += _used(str(task), rest)
                runs = runs or awake
            else:
                with contextlib.suppress(OSError):  # it has just ended
                    movers[task] = time.clock_gettime_ns(_clock_of(task)), awake
    return Carriers(carried, runs, movers)


def _clock_of(task: int) -> int:
    """Return the clock of a thread's processor time by the thread's number, as the C library's
    ``pthread_getcpuclockid`` does. It is exact while the thread runs; schedstat lags behind."""
    return (~task << 3) | 6


def _threads(wanted: Callable[[str], bool]) -> Iterator[tuple[int, str, str]]:
    """Yield number, name and status of each thread with a name that is wanted."""
    for task in os.listdir(TASKS):
        try:
            name = _read(f"{TASKS}/{task}/comm").removesuffix("\n")  # cheaper than its status
            if not wanted(name):
                continue
            stat = _read(f"{TASKS}/{task}/stat")
        except OSError:  # it has just ended
            continue
        yield int(task), name, stat.rpartition(")")[2]


def _used(task: str, stat: str) -> int:
    try:
        return int(_read(f"{TASKS}/{task}/schedstat").split()[0])
    except OSError:  # a kernel without schedstat: hundredths of a second
        fields = stat.split()
        return (int(fields[11]) + int(fields[12])) * 10_000_000


def _read(path: str) -> str:
    """Read a short file of the system's: ten times a second, without Python's layers of files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096).decode(errors="replace")
    finally:
        os.close(descriptor)


def stood_still(before: Clock | None, now: Clock) -> bool:
    """Return whether nothing has computed between two readings and nothing does now."""
    if before is None or now.runs or before.main != now.main:
        return False
    return now.others - before.others < times.IDLE_NANOSECONDS


# -- the system call that a thread is in -----------------------------------------------------------

#: Numbers of calls, by machine: a futex, and those that end after a time, or when something
#: from outside comes.
_FUTEX = {"x86_64": 202, "aarch64": 98}
_OUTSIDE = {
    "x86_64": {0, 35, 45, 47, 61, 230, 247},  # read nanosleep recv(2) wait4 clock_nanosleep waitid
    "aarch64": {63, 101, 115, 207, 212, 260, 95},
}
_READ = {"x86_64": 0, "aarch64": 63}
#: Place of a futex's time limit among its arguments.
_LIMIT = 4


def _current(task: int | None) -> list[str]:
    """Return the number of a thread's call and its arguments; nothing if not known."""
    try:
        with open(f"/proc/self/task/{task or os.getpid()}/syscall") as file:
            return file.read().split()
    except OSError:
        return []


def reads(task: int | None) -> bool:
    """Return whether a thread waits for something to read."""
    call = _current(task)
    return bool(call) and call[0] == str(_READ.get(platform.machine(), -1))


def waits_for_time(task: int | None = None) -> bool:
    """Return whether a thread sleeps, reads, or waits for a child process.

    ``task`` is the system's number of the thread; None: the main one.
    """
    call = _current(task)
    known = _OUTSIDE.get(platform.machine(), set())
    if call[:1] and call[0].isdigit() and int(call[0]) in known:
        return True
    return _is_futex(call) and int(call[1 + _LIMIT - 1], 16) != 0


def waits_for_lock(task: int | None = None) -> bool:
    """Return whether a thread (the main one) waits, without a time limit, for another thread."""
    call = _current(task)
    return _is_futex(call) and int(call[1 + _LIMIT - 1], 16) == 0


def _is_futex(call: list[str]) -> bool:
    return len(call) > _LIMIT and call[0] == str(_FUTEX.get(platform.machine(), -1))
