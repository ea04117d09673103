"""A group's constructor runs beside its caller, which can be interrupted or told to give up."""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time

import pytest
import torch.distributed as dist

from labkit.rank.torch_internals import connecting
from labkit.wire import python_threads


class Gloo:
    """Stands for torch's class: ``Gloo.make`` for its constructor."""

    def __init__(self, *given, **named):
        connecting.connect(self, *given, **named)


@pytest.fixture
def held(monkeypatch):
    """Let the constructor wait until the event is set."""
    free = threading.Event()

    def make(self, *given, **named):
        assert free.wait(10)
        self.given = given, named, threading.current_thread().name

    monkeypatch.setattr(connecting, "_original", make)
    yield free
    free.set()


def beside(function):
    """Call a function in a moment, in a thread."""
    thread = threading.Timer(0.2, function)
    thread.start()
    return thread


def test_the_object_is_made_in_a_thread_with_what_was_given(held):
    held.set()
    made = Gloo("store", 1, timeout=2)
    assert made.given == (("store", 1), {"timeout": 2}, "labkit connections")
    assert not connecting._attempts


def test_an_error_of_the_constructor_is_the_callers(monkeypatch):
    def make(self):
        raise ValueError("no store")

    monkeypatch.setattr(connecting, "_original", make)
    with pytest.raises(ValueError, match="no store"):
        Gloo()
    assert not connecting._attempts


def test_what_waits_is_told_to_give_up_and_raises(held):
    beside(connecting.cancel)
    with pytest.raises(dist.DistNetworkError, match="labkit ended the search"):
        Gloo()
    assert not connecting._attempts
    assert connecting.cancel() == 0


@pytest.fixture
def pressed():
    """Press stop until it is seen: a signal that comes just before a wait does not end that."""
    seen = threading.Event()

    def raise_once(*_):
        if not seen.is_set():
            seen.set()
            raise KeyboardInterrupt

    def press():
        while not seen.wait(0.05):
            if connecting._attempts:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    before = signal.signal(signal.SIGINT, raise_once)
    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    yield
    seen.set()
    thread.join()
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("held", "pressed")
def test_what_waits_can_be_interrupted():
    with pytest.raises(KeyboardInterrupt):
        Gloo()
    assert not connecting._attempts


@pytest.mark.usefixtures("pressed")
def test_a_constructor_that_was_interrupted_is_under_way_until_it_ends(held):
    with pytest.raises(KeyboardInterrupt):
        Gloo()
    assert connecting.is_under_way()
    held.set()
    deadline = time.monotonic() + 10
    while connecting.is_under_way():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.usefixtures("held", "pressed")
def test_a_constructor_of_a_group_that_was_left_is_not_under_way():
    with pytest.raises(KeyboardInterrupt):
        Gloo()
    connecting.forget()
    assert not connecting.is_under_way()


def test_a_thread_that_waits_counts_as_if_it_connected_by_itself(monkeypatch):
    gloo = queue.SimpleQueue()  # its ``get`` is in C, as torch's constructor is
    monkeypatch.setattr(connecting, "_original", gloo.get)
    caller = threading.Thread(target=Gloo, daemon=True)
    caller.start()
    while not connecting._attempts:
        time.sleep(0.01)
    time.sleep(0.1)
    frame = sys._current_frames()[caller.ident]
    outer = connecting.behind(frame)
    assert outer.f_code is Gloo.__init__.__code__
    assert connecting.behind(outer) is outer
    names = {thread.name for thread in threading.enumerate()}
    assert "labkit connections" in names
    assert "labkit connections" not in {seen.name for seen in python_threads.look(())}
    gloo.put(None)
    caller.join(10)
    assert not caller.is_alive()


def test_it_is_installed_once(monkeypatch):
    kept = dist.ProcessGroupGloo.__init__
    monkeypatch.setattr(connecting, "_original", None)
    monkeypatch.setattr(dist.ProcessGroupGloo, "__init__", kept)
    connecting.install()
    connecting.install()
    assert connecting._original is kept
    store = dist.HashStore()
    group = dist.ProcessGroupGloo(store, 0, 1)
    assert (group.rank(), group.size()) == (0, 1)
