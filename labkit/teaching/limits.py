"""Set the limits of a sandbox's processes, from inside and for good."""

from __future__ import annotations

import resource

import psutil

from .sandbox import FILE_SIZE, PROCESSES, Limits


def set_limits(limits: Limits) -> None:
    """Limit this process and all that it starts; none of them can take that back.

    Memory is limited here for each process, at half of what all may take together: its own
    writable pages. What all take is watched from outside, now and then.
    """
    threads = sum(_threads(process) for process in psutil.process_iter())
    _limit(resource.RLIMIT_CPU, int(limits.whole))
    _limit(resource.RLIMIT_DATA, limits.memory // 2)
    _limit(resource.RLIMIT_FSIZE, FILE_SIZE)
    _limit(resource.RLIMIT_NPROC, PROCESSES + threads)
    _limit(resource.RLIMIT_CORE, 0)


def _limit(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(which, (most, most))


def _threads(process: psutil.Process) -> int:
    """Return how many threads a process has: the system counts those of a user, not of a run."""
    try:
        return process.num_threads() if process.uids().real == psutil.Process().uids().real else 0
    except psutil.Error:
        return 0


if __name__ == "__main__":  # a sandbox is tried
    import ipykernel  # noqa: F401

    set_limits(Limits())
