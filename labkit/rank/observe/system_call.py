"""Tell in which call of the system a thread that stands still is: one that ends by itself?

Linux says so of a process's own threads; elsewhere nothing is known.
"""

from __future__ import annotations

import os
import platform

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
    """Tell whether a thread waits for something to read."""
    call = _current(task)
    return bool(call) and call[0] == str(_READ.get(platform.machine(), -1))


def waits_for_time(task: int | None = None) -> bool:
    """Tell whether a thread sleeps, reads, or waits for a child process.

    ``task`` is the system's number of the thread; None: the main one.
    """
    call = _current(task)
    known = _OUTSIDE.get(platform.machine(), set())
    if call[:1] and call[0].isdigit() and int(call[0]) in known:
        return True
    return _is_futex(call) and int(call[1 + _LIMIT - 1], 16) != 0


def waits_for_lock(task: int | None = None) -> bool:
    """Tell whether a thread (the main one) waits, without a time limit, for another thread."""
    call = _current(task)
    return _is_futex(call) and int(call[1 + _LIMIT - 1], 16) == 0


def _is_futex(call: list[str]) -> bool:
    return len(call) > _LIMIT and call[0] == str(_FUTEX.get(platform.machine(), -1))
