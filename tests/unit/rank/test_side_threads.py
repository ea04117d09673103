"""What blocks in C++ runs in a side thread, and its caller waits in Python."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from labkit.rank import side_threads
from labkit.rank.side_threads import Attempt
from labkit.wire import python_threads


def test_a_call_ends_with_its_value_or_its_error():
    attempt = Attempt(lambda: 3)
    side_threads.begin(attempt, "labkit test")
    assert attempt.ended.get(timeout=10) is None
    assert attempt.value == 3
    attempt = Attempt(lambda: 1 / 0)
    side_threads.begin(attempt, "labkit test")
    assert isinstance(attempt.ended.get(timeout=10), ZeroDivisionError)


def test_calls_one_after_the_other_share_a_thread_and_calls_at_the_same_time_do_not():
    names = []
    for _ in range(5):
        attempt = Attempt(lambda: names.append(threading.get_ident()))
        side_threads.begin_soon(attempt)
        assert attempt.ended.get(timeout=10) is None
        time.sleep(0.05)
    assert len(set(names)) == 1
    free = threading.Event()
    both = [Attempt(lambda: (free.wait(10), threading.get_ident())[1]) for _ in range(2)]
    for attempt in both:
        side_threads.begin_soon(attempt)
    free.set()
    assert [attempt.ended.get(timeout=10) for attempt in both] == [None, None]
    assert both[0].value != both[1].value


def test_a_side_thread_is_none_of_the_users():
    gloo = queue.SimpleQueue()  # its ``get`` is in C, as gloo's waits are
    attempt = Attempt(gloo.get)
    side_threads.begin_soon(attempt)
    time.sleep(0.1)
    assert "labkit wait" in {thread.name for thread in threading.enumerate()}
    assert "labkit wait" not in {seen.name for seen in python_threads.look(())}
    gloo.put(None)
    assert attempt.ended.get(timeout=10) is None
    with pytest.raises(AssertionError):
        attempt.run()  # it is made once
