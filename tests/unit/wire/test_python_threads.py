"""Which threads wait for another one, and which only seem to."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from labkit.wire import python_threads


@contextmanager
def thread(work: Callable[[], object]) -> Iterator[int]:
    """Run something in a thread; give its identifier once it stands still."""
    running = threading.Thread(target=work, daemon=True, name="worker {0}")
    running.start()
    assert running.ident is not None
    seen = None
    for _ in range(500):
        frame = sys._current_frames()[running.ident]
        if seen == (frame, frame.f_lasti):
            break
        seen = (frame, frame.f_lasti)
        time.sleep(0.01)
    yield running.ident


def parked(ident: int) -> bool:
    return python_threads.is_parked(sys._current_frames()[ident])


def test_a_wait_without_a_limit_is_parked_and_one_with_a_limit_is_not():
    event = threading.Event()
    with thread(event.wait) as endless, thread(lambda: event.wait(60)) as limited:
        assert parked(endless)
        assert not parked(limited)
        event.set()


def test_a_thread_that_waits_for_the_end_of_another_is_parked():
    event = threading.Event()
    other = threading.Thread(target=event.wait)
    other.start()
    with thread(other.join) as waiting:
        assert parked(waiting)
        event.set()
    other.join()


def test_a_thread_that_was_notified_is_not_parked_although_it_did_not_run_yet():
    condition = threading.Condition()

    def wait() -> None:
        with condition:
            condition.wait()

    with thread(wait) as waiting:
        assert parked(waiting)
        with condition:  # it needs this lock before it can go on
            condition.notify()
            assert not parked(waiting)
            time.sleep(0.05)
            assert not parked(waiting)


@pytest.mark.parametrize("waits", [True, False])
def test_a_pool_without_work_is_not_listed_and_one_with_work_is(waits):
    with concurrent.futures.ThreadPoolExecutor(1, "pool") as pool:
        event = threading.Event()
        pool.submit(int).result()
        if not waits:
            pool.submit(event.wait)
            pool.submit(int)
        time.sleep(0.05)
        listed = [s.name for s in python_threads.look({threading.get_ident()})]
        assert ("pool_0" in listed) == (not waits)
        event.set()


def test_a_worker_whose_work_has_come_is_listed_although_it_did_not_take_it_yet():
    with concurrent.futures.ThreadPoolExecutor(1, "pool") as pool:
        pool.submit(int).result()
        time.sleep(0.05)
        (worker,) = pool._threads
        assert worker.ident is not None
        frame = sys._current_frames()[worker.ident]
        own = list(python_threads.frames(frame))
        assert python_threads._is_harmless(own, worker)
        queue = frame.f_locals["work_queue"]
        switch = sys.getswitchinterval()
        sys.setswitchinterval(60)  # the worker gets no turn before it is looked at
        try:
            queue.put(None)
            assert not queue.empty()
            assert not python_threads._is_harmless(own, worker)
        finally:
            sys.setswitchinterval(switch)
