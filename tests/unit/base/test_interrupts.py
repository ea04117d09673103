"""What is held is not cut by an interrupt; what waits inside may be stopped."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from labkit.base import interrupts, times
from tests.support.virtual_clock import VirtualClock


@pytest.fixture(autouse=True)
def _original_handler() -> Iterator[None]:
    """See that the handler from before is there again."""
    before = signal.getsignal(signal.SIGINT)
    assert before is signal.default_int_handler
    yield
    assert signal.getsignal(signal.SIGINT) is before


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def press_later(seconds: float = 0.05) -> threading.Timer:
    timer = threading.Timer(seconds, press)
    timer.start()
    return timer


def test_what_is_held_runs_to_its_end_and_the_interrupt_comes_then() -> None:
    done = []

    def work() -> None:
        with interrupts.shielded():
            press()
            done.append("first")
            with interrupts.shielded():
                press()
                done.append("inner")
            done.append("last")
        done.append("after")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["first", "inner", "last"]


def test_without_an_interrupt_nothing_is_raised_and_none_is_remembered() -> None:
    with interrupts.shielded():
        assert not interrupts.has_come()
    with interrupts.shielded():
        press()
        assert interrupts.has_come()
        assert interrupts.take()
    with interrupts.shielded():
        assert not interrupts.has_come()
        interrupts.check()


def test_an_error_goes_before_an_interrupt() -> None:
    @interrupts.shielded()
    def work() -> None:
        press()
        raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        work()


def test_one_that_was_taken_is_not_raised_again() -> None:
    with interrupts.shielded():
        press()
        assert interrupts.take()
        assert not interrupts.take()
        assert interrupts.has_come()
    with interrupts.shielded():
        try:
            with interrupts.cancellable():
                press()
                interrupts.check()
        except KeyboardInterrupt:
            press()
            assert interrupts.take()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """A clock for waits, whose time jumps."""
    made = VirtualClock()
    monkeypatch.setattr(interrupts, "now", made.now)
    monkeypatch.setattr(interrupts, "pause", made.sleep)
    return made


Wait = Callable[[VirtualClock, float], object]


def by_sleeping(clock: VirtualClock, seconds: float) -> None:
    interrupts.sleep(seconds)


def by_function(clock: VirtualClock, seconds: float) -> None:
    interrupts.wait_by(clock.sleep, seconds)


WAITS = pytest.mark.parametrize("wait", [by_sleeping, by_function])


@WAITS
def test_a_wait_that_is_stoppable_ends_with_the_interrupt(clock: VirtualClock, wait: Wait) -> None:
    clock.at(30.01, press)
    with interrupts.shielded(), pytest.raises(KeyboardInterrupt), interrupts.cancellable():
        wait(clock, 60)
    assert 30 < clock.time <= 30.01 + times.NOTICE


@WAITS
def test_a_wait_that_is_not_stoppable_takes_its_time(clock: VirtualClock, wait: Wait) -> None:
    ended: list[float] = []

    @interrupts.shielded()
    @interrupts.cancellable()
    def work() -> None:
        with interrupts.shielded():
            press()
            wait(clock, 60)
            ended.append(clock.time)
        interrupts.check()
        pytest.fail("it is stoppable here")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert ended == pytest.approx([60])


def test_an_interrupt_may_have_to_be_old_enough(clock: VirtualClock) -> None:
    with interrupts.shielded():
        press()
        with interrupts.cancellable(after=10):
            interrupts.check()
            with pytest.raises(KeyboardInterrupt):
                interrupts.sleep(60)
        assert 10 <= clock.time <= 10 + 2 * times.NOTICE


def test_a_wait_for_futures_ends_with_the_interrupt() -> None:
    with interrupts.shielded():
        timer = press_later()
        with pytest.raises(KeyboardInterrupt), interrupts.cancellable():
            interrupts.wait([concurrent.futures.Future()], 60)
        timer.join()


def test_waits_return_what_they_wait_for() -> None:
    done: concurrent.futures.Future[None] = concurrent.futures.Future()
    pending: concurrent.futures.Future[None] = concurrent.futures.Future()
    done.set_result(None)
    assert interrupts.wait([done], 0)
    assert not interrupts.wait([done, pending], 0.01)
    assert interrupts.wait([done, pending], 60, concurrent.futures.FIRST_COMPLETED)
    threading.Timer(0.3, pending.set_result, [None]).start()
    assert interrupts.wait([done, pending], 60)
    event = threading.Event()
    assert not interrupts.wait_by(event.wait, 0.25)
    event.set()
    assert interrupts.wait_by(event.wait, 0)


def test_what_hangs_is_cut_by_an_interrupt_that_comes_long_after_the_first(
    clock: VirtualClock,
) -> None:
    with interrupts.shielded():
        press()
        for clock.time in (0.1, times.FORCE - 0.1, times.FORCE):
            press()  # too early
        clock.time = times.FORCE + 0.1
        with pytest.raises(KeyboardInterrupt):
            press()


def test_on_a_busy_machine_what_hangs_is_cut_as_soon(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "pace", SimpleNamespace(factor=20.0))
    with interrupts.shielded():
        press()
        clock.time = times.FORCE + 0.1
        with pytest.raises(KeyboardInterrupt):
            press()


def test_other_threads_and_processes_that_ignore_interrupts_are_left_alone() -> None:
    def elsewhere() -> bool:
        with interrupts.shielded(), interrupts.cancellable():
            interrupts.sleep(0.01)
            return signal.getsignal(signal.SIGINT) is signal.default_int_handler

    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert pool.submit(elsewhere).result()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.shielded(), interrupts.cancellable():
            press()
            interrupts.sleep(0.01)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_else_handles_interrupts_gets_them() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, frame: seen.append(signum))
    try:
        with interrupts.shielded():
            press()
            assert seen == []
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_none_gets_through_at_any_moment() -> None:
    inside = False
    seen: list[bool] = []
    before = signal.signal(signal.SIGINT, lambda signum, frame: seen.append(inside))
    stop = threading.Event()

    def shower() -> None:
        while not stop.wait(0.0003):
            press()

    thread = threading.Thread(target=shower)
    thread.start()
    try:
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            with interrupts.shielded():
                inside = True
                sum(range(2000))
                inside = False
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert seen
    assert not any(seen)


def test_what_is_released_is_cut_at_once_and_what_is_held_around_it_is_not() -> None:
    done = []

    def work() -> None:
        with interrupts.shielded():
            with pytest.raises(KeyboardInterrupt), interrupts.unshielded():
                press()
            assert interrupts.has_come()
            press()
            done.append("held again")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["held again"]


def test_an_interrupt_that_came_before_is_raised_where_it_is_released() -> None:
    def work() -> None:
        press()
        with interrupts.unshielded():
            pytest.fail("it came before")

    with interrupts.shielded(), interrupts.cancellable(), pytest.raises(KeyboardInterrupt):
        work()


def test_nothing_is_released_where_nothing_is_held() -> None:
    with interrupts.unshielded():
        pass
