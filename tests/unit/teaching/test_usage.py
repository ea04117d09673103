"""The clock that stands nearly still while processes wait, and the memory that they take."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from labkit.base import times
from labkit.teaching import usage
from labkit.teaching.usage import Schedule, ServedTime

SECOND = 1_000_000_000


def clock(*schedules: Schedule) -> ServedTime:
    """Make one that sees these schedules, two seconds after each other."""
    seen: Iterator[Schedule] = iter(schedules)
    seconds = iter(range(0, 2 * len(schedules), 2))
    return ServedTime(1, lambda pid: next(seen), lambda: float(next(seconds)))


def test_who_sleeps_or_gets_all_it_asks_for_sees_any_other_clock() -> None:
    served = clock({"1": (0, 0)}, {"1": (0, 0)}, {"1": (2 * SECOND, 0)}, {})
    assert [served.seconds() for _ in range(3)] == [2, 4, 6]


def test_a_second_of_waiting_does_not_count() -> None:
    waits = {"1": (SECOND, SECOND), "2": (0, 0)}
    served = clock({"1": (0, 0)}, waits, waits | {"2": (SECOND, 3 * SECOND)})
    assert [served.seconds() for _ in range(2)] == [1.0, 1.5]


def test_who_is_never_served_has_an_end() -> None:
    served = clock({"1": (0, 0)}, {"1": (0, 2 * SECOND)})
    assert served.seconds() == 2 / times.GRADED_STRETCH


def test_a_thread_that_is_new_or_gone_does_not_turn_it_back() -> None:
    served = clock({"1": (9 * SECOND, 9 * SECOND)}, {"2": (SECOND, SECOND)}, {"2": (0, 0)})
    assert [served.seconds() for _ in range(2)] == [1.0, 3.0]


def test_the_system_tells_of_all_threads_of_a_process() -> None:
    found = usage.schedule_of(os.getpid())
    assert set(os.listdir("/proc/self/task")) <= set(found)
    on, _ = found[str(os.getpid())]
    sum(range(2_000_000))
    assert usage.schedule_of(os.getpid())[str(os.getpid())][0] > on


def test_a_process_that_has_ended_takes_nothing() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert not usage.schedule_of(pid)
    assert usage.memory_of(pid, 1 << 30) == 0


@pytest.mark.parametrize("limit", [1 << 40, 1], ids=["roughly", "exactly"])
def test_memory_that_is_written_to_counts(limit: int) -> None:
    before = usage.memory_of(os.getpid(), limit)
    block = bytearray(b"x") * (64 << 20)
    assert usage.memory_of(os.getpid(), limit) >= before + len(block) // 2
