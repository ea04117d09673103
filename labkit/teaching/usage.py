"""What processes take of the machine, and what they are given of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from ..base import times

#: Of each thread: nanoseconds on a processor, and waiting for one.
Schedule = dict[str, tuple[int, int]]


def tree(pid: int) -> list[int]:
    """Return a process and its descendants; none, once it has ended."""
    try:
        first = psutil.Process(pid)
        return [pid, *(child.pid for child in first.children(recursive=True))]
    except psutil.Error:
        return []


# -- time -----------------------------------------------------------------------------------------


class ServedTime:
    """A clock that slows down while processes wait for a processor, so that a limit on it does not
    depend on what else the machine has to do.

    While they compute, a second of it is a second on a processor of which they got all they asked
    for; while they sleep, a second of any clock. It needs to be read about once a second.

    Parameters
    ----------
    pid
        The first process; its descendants count as well.
    """

    def __init__(
        self,
        pid: int,
        schedule: Callable[[int], Schedule] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid = pid
        self._schedule = schedule or schedule_of
        self._now = now
        self._seconds = 0.0
        self._last = now()
        self._before = self._schedule(pid)

    def seconds(self) -> float:
        """Return how many have passed since it was made."""
        threads, now = self._schedule(self._pid), self._now()
        ran = waited = 0
        for thread, (on, off) in threads.items():
            on_before, off_before = self._before.get(thread, (0, 0))
            ran += max(0, on - on_before)
            waited += max(0, off - off_before)
        share = ran / (ran + waited) if ran + waited else 1.0
        self._seconds += (now - self._last) * max(share, 1 / times.GRADED_STRETCH)
        self._before, self._last = threads, now
        return self._seconds


def schedule_of(pid: int) -> Schedule:
    """Return what the system's scheduler says of the threads of a process and its descendants;
    nothing where it does not tell."""
    found: Schedule = {}
    for process in tree(pid):
        try:
            for thread in Path(f"/proc/{process}/task").iterdir():
                on, off, _ = (thread / "schedstat").read_text().split()
                found[thread.name] = int(on), int(off)
        except OSError:  # it has ended
            continue
    return found


# -- memory ---------------------------------------------------------------------------------------


def memory_of(pid: int, limit: int) -> int:
    """Return the memory that a process and its descendants take, in bytes.

    What several of them share counts once. The exact number takes the system some time, so that
    above half of ``limit`` only it is asked for; below, what is shared counts for each.
    """
    processes = tree(pid)
    rough = sum(map(_status, processes))
    return rough if rough < limit // 2 else sum(map(_share, processes))


def _status(pid: int) -> int:
    """Return the memory of a process that no file stands behind."""
    return _sum(f"/proc/{pid}/status", ("RssAnon:", "RssShmem:"))


def _share(pid: int) -> int:
    """Return the memory of a process, what it shares with others divided among them."""
    return _sum(f"/proc/{pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")) or _status(pid)


def _sum(path: str, names: Sequence[str]) -> int:
    try:
        lines = [line.split() for line in Path(path).read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(words[1]) << 10 for words in lines if words and words[0] in names)
