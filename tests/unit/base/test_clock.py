"""A wait for a condition ends with the news that make it true, whichever thread has them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from labkit.base import clock as module
from labkit.base import interrupts, times
from labkit.base.clock import Clock
from tests.support.virtual_clock import VirtualClock


def run(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_a_condition_that_holds_is_not_waited_for() -> None:
    assert Clock().wait_for(lambda: True, 0)
    assert not Clock().wait_for(lambda: False, 0)


@pytest.fixture
def _no_looks_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a wait look at its condition only when there is news."""
    monkeypatch.setattr(times, "NOTICE", 60.0)


@pytest.mark.usefixtures("_no_looks_besides")
def test_no_news_is_lost_whenever_it_comes() -> None:
    """Two threads take turns two thousand times: one wait that missed the news would hang."""
    clock, turn = Clock(), [0]

    def play(own: int) -> None:
        for _ in range(1000):
            assert clock.wait_for(lambda: turn[0] % 2 == own, 60)
            turn[0] += 1
            clock.notify()

    threads = [run(lambda own=own: play(own)) for own in range(2)]
    for thread in threads:
        thread.join(60)
    assert turn == [2000]


@pytest.mark.usefixtures("_no_looks_besides")
def test_news_that_comes_while_the_condition_is_looked_at_is_news() -> None:
    clock, looks = Clock(), 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        clock.notify()  # another thread does that just after the look
        return looks > 1

    assert clock.wait_for(look, 60)


def test_it_looks_now_and_then_without_news() -> None:
    clock, looks = Clock(), 0

    def look() -> bool:
        nonlocal looks
        looks += 1
        return looks > 2

    assert clock.wait_for(look, 60)


def test_a_wait_that_is_stoppable_ends_with_the_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    virtual = VirtualClock()
    monkeypatch.setattr(interrupts, "now", virtual.now)
    clock = Clock()
    monkeypatch.setattr(clock._news, "wait", virtual.sleep)
    monkeypatch.setattr(module.interrupts, "check", lambda: virtual.time > 5 and _stop())
    with pytest.raises(KeyboardInterrupt):
        clock.wait_for(lambda: False, 60)
    assert 5 < virtual.time <= 5 + 2 * times.NOTICE


def _stop() -> None:
    raise KeyboardInterrupt
