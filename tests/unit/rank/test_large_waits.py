"""A wait for something large goes on in a thread, and can be given up."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.distributed as dist

from labkit.rank import large_waits
from labkit.rank.torch_internals import groups


class Work:
    """Stands for torch's class."""


@pytest.fixture
def backend(monkeypatch):
    """Let this be the backend of every group."""
    known = ["gloo"]
    monkeypatch.setattr(groups, "serving", lambda group, tensors: known[0])
    monkeypatch.setattr(large_waits, "_kept", [])
    return known


def note(elements, group="a group"):
    work = Work()
    large_waits.note(group, [torch.empty(elements, dtype=torch.uint8)], work)
    return work


def test_only_what_is_large_and_gloos_is_waited_for_in_a_thread(backend):
    assert large_waits.begin(note(large_waits.LARGE - 1), int) is None
    backend[0] = "nccl"
    assert large_waits.begin(note(large_waits.LARGE), int) is None
    backend[0] = "gloo"
    attempt = large_waits.begin(note(large_waits.LARGE), lambda: threading.current_thread().name)
    assert attempt is not None
    assert large_waits.result(attempt, attempt.ended.get(timeout=10)) == "labkit wait"
    large_waits.end(attempt)


def test_what_is_given_up_fails_and_its_group_is_never_destroyed(backend):
    free = threading.Event()
    attempt = large_waits.begin(note(large_waits.LARGE), lambda: free.wait(10))
    assert large_waits.give_up() == 1
    with pytest.raises(dist.DistNetworkError, match=r"^Connection closed: labkit"):
        large_waits.result(attempt, attempt.ended.get(timeout=10))
    large_waits.end(attempt)
    assert large_waits.give_up() == 0
    assert large_waits._kept == ["a group"]
    free.set()


def test_a_wait_that_was_interrupted_is_joined_by_the_next_one(backend):
    free, calls = threading.Event(), []
    work = note(large_waits.LARGE)

    def wait():
        calls.append(1)
        return free.wait(10)

    first = large_waits.begin(work, wait)
    large_waits.end(first)  # KeyboardInterrupt
    second = large_waits.begin(work, wait)
    free.set()
    for attempt in (second, large_waits.begin(work, wait)):
        assert large_waits.result(attempt, attempt.ended.get(timeout=10)) is True
        large_waits.end(attempt)
    assert calls == [1]
