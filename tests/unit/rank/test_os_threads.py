"""Whether threads that are not Python's compute for a main thread that stands still."""

from __future__ import annotations

import _thread
import hashlib
import os
import sys
import threading
import time

import pytest

from labkit.base import times
from labkit.rank import os_threads
from labkit.rank.os_threads import Clock, stood_still

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def compute(seconds):
    """Compute in C, without the interpreter's lock, until its thread has had so much CPU time."""
    deadline = time.thread_time() + seconds
    while time.thread_time() < deadline:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000)  # about 5 ms


def clock_of(ident):
    """Return a function that tells for how many seconds a thread has had a processor."""
    clock = time.pthread_getcpuclockid(ident)
    return lambda: time.clock_gettime(clock)


def beside(look):
    """Run ``look`` in a thread while the main one is blocked; return what it returned."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(look()))
    thread.start()
    thread.join()
    return answers[0]


def pairs(seconds=3.0):
    """Read the clock again and again; give each reading with the one before."""
    deadline = time.monotonic() + seconds
    before = os_threads.read()
    while time.monotonic() < deadline:
        time.sleep(0.02)
        now = os_threads.read()
        yield before, now
        before = now


def pairs_while(computes, number=5):
    """Read the clock again each time a thread has had a processor for 20 ms, by its own clock."""
    before = os_threads.read()
    for _ in range(number):
        deadline = computes() + 0.02
        while computes() < deadline:
            time.sleep(0.001)
        now = os_threads.read()
        yield before, now
        before = now


class Foreign:
    """A busy thread that is none of Python's, as gloo's and OpenMP's are."""

    def __init__(self, name="pt_busy", pause=0.0):
        self.name = name
        self.pause = pause  #: seconds that it sleeps between two short calculations
        self.stop = False
        self.done = threading.Event()

    def __enter__(self):
        started = threading.Event()

        def run():
            self.task = f"/proc/self/task/{threading.get_native_id()}"
            self.clock = clock_of(threading.get_ident())
            with open(f"{self.task}/comm", "w") as file:
                file.write(self.name)
            started.set()
            while not self.stop:
                hashlib.pbkdf2_hmac("sha256", b"", b"", 20 if self.pause else 20_000)
                time.sleep(self.pause)
            self.done.set()

        _thread.start_new_thread(run, ())
        assert started.wait(60)
        return self

    def __exit__(self, *error):
        self.stop = True
        assert self.done.wait(60)
        while os.path.exists(self.task):  # until then it counts
            time.sleep(0.001)


def test_the_clock_stands_still_while_the_main_thread_waits():
    assert beside(lambda: any(stood_still(*pair) for pair in pairs()))


def test_the_clock_moves_while_the_main_thread_computes():
    before = os_threads.main_clock()
    compute(0.1)
    assert os_threads.main_clock() - before > 10_000_000


@linux
def test_a_busy_main_thread_is_never_still():
    seen = []
    clock = clock_of(threading.main_thread().ident)
    thread = threading.Thread(target=lambda: seen.extend(pairs_while(clock)))
    thread.start()
    while thread.is_alive():
        compute(0.02)
    assert seen
    assert not any(stood_still(*pair) for pair in seen)


@linux
def test_the_time_of_another_python_thread_does_not_count():
    """It answers questions, so it would always run."""

    def look():
        before = os_threads.read()
        compute(0.05)
        return stood_still(before, os_threads.read())

    assert any(beside(look) for _ in range(20))


@linux
def test_the_time_of_a_foreign_thread_counts():
    with Foreign() as foreign:
        seen = beside(lambda: list(pairs_while(foreign.clock)))
    assert seen
    assert not any(stood_still(*pair) for pair in seen)
    assert seen[-1][1].others - seen[0][0].others > 10_000_000


@linux
@pytest.mark.parametrize("name", ["ZMQbg/IO/0", "ZMQbg/Reaper"])
def test_zeromqs_threads_do_not_count(name):
    with Foreign(name):
        assert beside(lambda: any(stood_still(*pair) for pair in pairs()))


@linux
@pytest.mark.parametrize("name", [os_threads.POLLING, *os_threads.WATCHING])
def test_threads_that_only_poll_do_not_count(name):
    """Gloo's is busy with data or without, NCCL's look at the clock forever."""
    with Foreign(name):
        seen = beside(lambda: list(pairs(0.2)))
    assert any(stood_still(*pair) for pair in seen)
    assert seen[-1][1].others - seen[0][0].others < 10_000_000


@linux
def test_a_foreign_thread_that_wakes_up_now_and_then_does_not_compute():
    """Telemetry, say: a few microseconds, ten times a second."""
    with Foreign(pause=0.02):
        seen = beside(lambda: list(pairs(0.5)))
    still = sum(stood_still(*pair) for pair in seen)
    assert still >= len(seen) / 2


@linux
def test_the_time_of_gloos_collectives_is_read_apart():
    before = os_threads.carriers()
    with Foreign(os_threads.RUNNING):
        while not (during := os_threads.carriers()).runs:
            pass
        while during.carried - before.carried <= 10_000_000:
            during = os_threads.carriers()
    assert during.movers.keys() == before.movers.keys()
    assert not before.runs


@linux
def test_gloos_thread_that_moves_data_is_seen_awake():
    """Once it has the interpreter's lock, which the looks may keep from it for a while."""
    with Foreign(os_threads.POLLING):
        looks = [os_threads.carriers()]
        while not any(awake for _, awake in looks[-1].movers.values()):
            looks.append(os_threads.carriers())
    assert all(look.carried == looks[0].carried and not look.runs for look in looks)


@linux
def test_the_time_of_gloos_thread_that_moves_data_is_exact():
    """What schedstat says of a thread that runs stays the same for milliseconds."""

    def look():
        number = threading.get_native_id()
        with open(f"/proc/self/task/{number}/comm", "w") as file:
            file.write(os_threads.POLLING)
        before = time.thread_time_ns()
        used, awake = os_threads.carriers().movers[number]
        return before, used, time.thread_time_ns(), awake

    before, used, after, awake = beside(look)
    assert before < used < after
    assert awake


@linux
def test_a_main_thread_that_is_blocked_does_not_run_and_one_that_was_woken_does():
    def look():
        time.sleep(0.1)
        return os_threads.main_runs()

    assert os_threads.main_runs()
    assert not beside(look)


@linux
def test_the_main_thread_is_known_in_a_forked_process(monkeypatch):
    """Python keeps the number that the thread had in the parent (seen with 3.11)."""
    monkeypatch.setattr(threading.main_thread(), "_native_id", 2**22 + 1)
    before = os_threads.read()
    compute(0.1)
    assert os_threads.read().others - before.others < 10_000_000


STILL = Clock(5, 7, False)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (STILL, STILL, True),
        (None, STILL, False),
        (STILL, STILL._replace(main=6), False),
        (STILL, STILL._replace(others=7 + times.IDLE_NANOSECONDS - 1), True),
        (STILL, STILL._replace(others=7 + times.IDLE_NANOSECONDS), False),
        (STILL, STILL._replace(runs=True), False),
        (STILL._replace(runs=True), STILL, True),
    ],
)
def test_stood_still(before, now, expected):
    assert stood_still(before, now) is expected


def test_where_there_is_no_proc_only_the_main_thread_is_read(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(time, "pthread_getcpuclockid")
    before = os_threads.read()
    compute(0.05)
    now = os_threads.read()
    assert now.main > before.main
    assert now[1:] == (0, False)
