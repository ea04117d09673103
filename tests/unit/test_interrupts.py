"""What is held is not cut by an interrupt; what waits inside may be stopped."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from labkit import interrupts, times


@pytest.fixture(autouse=True)
def _stock_handler() -> Iterator[None]:
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
        with interrupts.held():
            press()
            done.append("first")
            with interrupts.held():
                press()
                done.append("inner")
            done.append("last")
        done.append("after")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["first", "inner", "last"]


def test_without_an_interrupt_nothing_is_raised_and_none_is_remembered() -> None:
    with interrupts.held():
        assert not interrupts.has_come()
    with interrupts.held():
        press()
        assert interrupts.has_come()
        assert interrupts.take()
    with interrupts.held():
        assert not interrupts.has_come()
        interrupts.check()


def test_an_error_goes_before_an_interrupt() -> None:
    @interrupts.held()
    def work() -> None:
        press()
        raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        work()


def test_one_that_was_taken_is_not_raised_again() -> None:
    with interrupts.held():
        press()
        assert interrupts.take()
        assert not interrupts.take()
        assert interrupts.has_come()
    with interrupts.held():
        try:
            with interrupts.stoppable():
                press()
                interrupts.check()
        except KeyboardInterrupt:
            press()
            assert interrupts.take()


WAITS: list[Callable[[float], object]] = [
    interrupts.sleep,
    lambda seconds: interrupts.wait([concurrent.futures.Future()], seconds),
    lambda seconds: interrupts.wait_by(threading.Event().wait, seconds),
]


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_that_is_stoppable_ends_with_the_interrupt(wait: Callable[[float], object]) -> None:
    began = time.monotonic()
    with interrupts.held():
        timer = press_later()
        with pytest.raises(KeyboardInterrupt), interrupts.stoppable():
            wait(60)
        timer.join()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_that_is_not_stoppable_takes_its_time(wait: Callable[[float], object]) -> None:
    ended: list[float] = []
    began = time.monotonic()

    @interrupts.held()
    @interrupts.stoppable()
    def work() -> None:
        with interrupts.held():
            press()
            wait(0.3)
            ended.append(time.monotonic() - began)
        interrupts.check()
        ended.append(float("inf"))

    with pytest.raises(KeyboardInterrupt):
        work()
    assert [seconds >= 0.3 for seconds in ended] == [True]
    assert ended[0] < 30


def test_an_interrupt_may_have_to_be_old_enough() -> None:
    with interrupts.held():
        press()
        began = time.monotonic()
        with interrupts.stoppable(after=0.3):
            interrupts.check()
            with pytest.raises(KeyboardInterrupt):
                interrupts.sleep(60)
        assert 0.25 < time.monotonic() - began < 30


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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(times, "FORCE", 0.2)
    with interrupts.held():
        press()
        press()  # too early
        time.sleep(0.25)
        timer = press_later()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
        timer.join()


def test_other_threads_and_processes_that_ignore_interrupts_are_left_alone() -> None:
    def elsewhere() -> bool:
        with interrupts.held(), interrupts.stoppable():
            interrupts.sleep(0.01)
            return signal.getsignal(signal.SIGINT) is signal.default_int_handler

    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert pool.submit(elsewhere).result()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.held(), interrupts.stoppable():
            press()
            interrupts.sleep(0.01)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_else_handles_interrupts_gets_them() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, frame: seen.append(signum))
    try:
        with interrupts.held():
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
            with interrupts.held():
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
        with interrupts.held():
            timer = press_later()
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt), interrupts.released():
                time.sleep(5)
            timer.join()
            assert time.monotonic() - began < 4
            assert interrupts.has_come()
            press()
            done.append("held again")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["held again"]


def test_an_interrupt_that_came_before_is_raised_where_it_is_released() -> None:
    def work() -> None:
        press()
        with interrupts.released():
            pytest.fail("it came before")

    with interrupts.held(), interrupts.stoppable(), pytest.raises(KeyboardInterrupt):
        work()


def test_nothing_is_released_where_nothing_is_held() -> None:
    with interrupts.released():
        pass
