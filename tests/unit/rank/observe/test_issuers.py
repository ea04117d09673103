"""What else of a rank may issue calls: threads, tasks, timers, handlers, futures, agents."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from labkit.rank import activity, ipython_internals, tracebacks
from labkit.rank.observe import blocked_call, device_wait, flight_recorder, issuers, p2p_record
from labkit.rank.torch_internals import rpc
from labkit.wire import python_threads
from labkit.wire.samples import Issuer, Wait


@pytest.fixture(autouse=True)
def _nothing_else(monkeypatch):
    """Let this process have nothing that may issue calls, but what a test gives it."""
    monkeypatch.setattr(activity, "loop", None)
    monkeypatch.setattr(rpc, "is_called", lambda: False)
    monkeypatch.setattr(p2p_record, "futures", [])
    monkeypatch.setattr(tracebacks, "get_shell", lambda: SimpleNamespace(kernel=None))
    monkeypatch.setattr(ipython_internals, "is_shared", lambda kernel: False)
    limit = signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout's
    yield
    signal.signal(signal.SIGALRM, limit)


# -- threads --------------------------------------------------------------------------------------


@pytest.fixture
def thread(monkeypatch):
    """One thread beside the main one: its clock and its wait are the test's."""
    state = SimpleNamespace(clock=5, wait=Wait("recv"), there=True)
    frame = object()
    seen = python_threads.Seen(77, "Thread-3 (tick)", frame)
    monkeypatch.setattr(python_threads, "look", lambda without: [seen] if state.there else [])
    monkeypatch.setattr(issuers, "_clock", lambda ident: state.clock)
    monkeypatch.setattr(blocked_call, "describe", lambda f: state.wait if f is frame else None)
    monkeypatch.setattr(blocked_call, "is_known", lambda f: False)
    return state


NAME = "a thread of rank {rank} is alive: Thread-3 (tick)"


def test_a_thread_waits_if_it_did_not_run_between_two_looks(thread):
    threads = issuers.Threads()
    threads.look()
    assert threads.issuers() == [Issuer(NAME)]
    threads.look()
    assert threads.issuers() == [Issuer(NAME, Wait("recv"))]
    assert threads.stamp() == (5,)
    thread.clock = 6
    threads.look()
    assert threads.issuers() == [Issuer(NAME)]
    assert threads.stamp() == ()  # one that runs has no stamp: it would change at every look


def test_a_thread_in_nothing_that_is_known_is_listed_without_a_wait(thread):
    thread.wait = None
    threads = issuers.Threads()
    threads.look()
    threads.look()
    assert threads.issuers() == [Issuer(NAME)]


def test_a_wait_of_a_thread_with_a_limit_ends_for_certain(thread, monkeypatch):
    thread.wait = None
    monkeypatch.setattr(blocked_call, "is_known", lambda frame: True)
    threads = issuers.Threads()
    threads.look()
    assert threads.issuers() == [Issuer(NAME)]
    threads.look()
    assert threads.issuers() == [Issuer(NAME, ends=True)]


@pytest.mark.parametrize("in_lock", [True, False])
def test_a_thread_that_waits_in_c_waits_for_the_device(thread, monkeypatch, in_lock):
    thread.wait = None
    on_device = Wait("device", partial=True)
    monkeypatch.setattr(device_wait, "is_pending", lambda: True)
    monkeypatch.setattr(device_wait, "describe", lambda frame: on_device)
    monkeypatch.setattr(issuers, "_waits_for_lock", lambda ident: in_lock and ident == 77)
    threads = issuers.Threads()
    threads.look()
    threads.look()
    assert threads.issuers() == [Issuer(NAME, on_device if in_lock else None)]


def test_a_lock_is_told_from_a_sleep():
    lock, over = threading.Lock(), threading.Event()
    lock.acquire()
    kept = threading.Thread(target=lock.acquire)
    asleep = threading.Thread(target=lambda: [time.sleep(0.01) for _ in iter(over.is_set, True)])
    for thread in (kept, asleep):
        thread.start()
    try:
        deadline = time.monotonic() + 10
        while not issuers._waits_for_lock(kept.ident) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert issuers._waits_for_lock(kept.ident) is sys.platform.startswith("linux")
        assert not any(issuers._waits_for_lock(asleep.ident) for _ in range(20))
    finally:
        lock.release()
        over.set()
        kept.join()
        asleep.join()
    assert not issuers._waits_for_lock(kept.ident)


def test_a_main_thread_is_alone_where_there_is_no_other(thread):
    threads = issuers.Threads()
    threads.look()
    assert not threads.is_alone()
    thread.there = False
    threads.look()
    assert threads.is_alone()
    assert threads.issuers() == []


def test_the_clock_of_a_real_thread_stands_still_while_it_waits():
    event = threading.Event()
    waiting = threading.Thread(target=event.wait)
    waiting.start()
    time.sleep(0.1)
    clock = issuers._clock(waiting.ident)
    time.sleep(0.05)
    assert issuers._clock(waiting.ident) == clock
    event.set()
    waiting.join()


# -- what is no thread ----------------------------------------------------------------------------


def test_a_rank_without_any_has_none():
    assert list(issuers.others()) == []


def test_tasks_and_timers_of_the_users_act_while_the_rank_is_idle(monkeypatch):
    async def tick():
        await asyncio.sleep(60)

    def ring():
        """Do nothing."""

    async def look():
        monkeypatch.setattr(activity, "loop", asyncio.get_running_loop())
        task = asyncio.create_task(tick())
        timer = activity.loop.call_later(60, ring)
        await asyncio.sleep(0)
        found = list(issuers.others())
        task.cancel()
        timer.cancel()
        return found

    found = asyncio.run(look())
    tasks = [issuer for issuer in found if "a task of rank {rank}'s event loop" in issuer.name]
    assert any(task.name.endswith(".tick") for task in tasks)
    assert tasks[0].when_idle
    assert Issuer("a timer of rank {rank}'s event loop is pending: ring", None, True) in found


def test_a_handler_of_the_users_is_listed_and_pythons_own_is_not():
    before = signal.signal(signal.SIGUSR2, lambda number, frame: None)
    try:
        assert list(issuers.others()) == [
            Issuer("rank {rank} has a handler for SIGUSR2", when_idle=True)
        ]
    finally:
        signal.signal(signal.SIGUSR2, before)


class Future:
    def __init__(self, done):
        self.done = lambda: done


def test_a_function_that_waits_for_a_future_waits_for_its_collective(monkeypatch):
    asked = []

    def pending(operation, home):
        asked.append((operation, home))
        return ((("0", (0, 1)), 3),) if operation == 3 else ()

    monkeypatch.setattr(flight_recorder, "pending", pending)
    p2p_record.futures[:] = [
        (Future(False), "0", 3),
        (Future(True), "0", 2),
        (Future(False), "0", 9),
    ]
    assert list(issuers.others()) == [
        Issuer(issuers.CALLBACK, Wait("collective", ((("0", (0, 1)), 3),))),
        Issuer(issuers.CALLBACK),  # not on record: nobody knows what it waits for
    ]
    assert asked == [(3, "0"), (9, "0")]
    assert [number for _, _, number in p2p_record.futures] == [3, 9]  # the done one is let go


def test_an_agent_of_rpc_and_another_client_are_listed(monkeypatch):
    monkeypatch.setattr(rpc, "is_called", lambda: True)
    monkeypatch.setattr(ipython_internals, "is_shared", lambda kernel: True)
    monkeypatch.setattr(tracebacks, "has_shell", lambda: True)
    assert list(issuers.others()) == [
        Issuer("rank {rank} may be called by RPC"),
        Issuer("another notebook or client has used rank {rank}", when_idle=True),
    ]
