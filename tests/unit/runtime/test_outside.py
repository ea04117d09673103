"""What may still give work to a rank that has none: threads of the notebook, tasks of its views."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from labkit.runtime import watchdog


def client(*, tasks=()):
    """Return an ipyparallel client with one message out to engine 0, and with some tasks."""
    return SimpleNamespace(
        _outstanding_dict={"uuid-0": {"message"}}, outstanding={"message", *tasks}
    )


@pytest.fixture
def thread():
    """Start a thread of the notebook's user that waits for the end of the test."""
    end = threading.Event()
    started = threading.Thread(target=lambda: end.wait(), name="sender", daemon=True)
    started.start()
    yield
    end.set()
    started.join()


def own(doubts):
    """Leave out what pytest itself may have running."""
    return [doubt for doubt in doubts if "sender" in doubt or "lab.client" in doubt]


def test_nothing_is_out_that_nobody_knows_of():
    assert own(watchdog.doubts_outside(client())) == []


@pytest.mark.usefixtures("thread")
def test_a_thread_of_the_notebook_may_send_something():
    (doubt,) = own(watchdog.doubts_outside(client()))
    assert doubt == watchdog.THREAD.format("sender")


def test_the_thread_that_asks_is_not_doubted():
    """A cell may be followed in a thread: that one is busy following."""
    with ThreadPoolExecutor(1, thread_name_prefix="sender") as pool:
        assert own(pool.submit(watchdog.doubts_outside, client()).result()) == []


def test_a_task_of_a_balanced_view_may_go_to_any_rank():
    assert own(watchdog.doubts_outside(client(tasks=["task"]))) == [watchdog.TASK]


def test_a_client_that_hides_what_is_out_is_not_doubted():
    """Nothing would ever be proved otherwise."""
    assert own(watchdog.doubts_outside(SimpleNamespace(outstanding={"task"}))) == []
