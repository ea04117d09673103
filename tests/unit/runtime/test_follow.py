"""What is waited for, and how it is said to have ended; nothing is done about it yet."""

from __future__ import annotations

import concurrent.futures
from types import SimpleNamespace

import pytest

from labkit import times
from labkit.runtime import control
from labkit.runtime import follow as module
from labkit.runtime.follow import follow
from labkit.runtime.watchdog import Suspicion
from tests.support.requests import failed, reply, request_with
from tests.support.virtual_clock import VirtualClock


class FakeWatcher:
    """Watch nothing; find and suspect what it was told to."""

    polls = 0
    found = None
    suspicion = None
    old = False  #: it has lasted, and was confirmed

    def __init__(self, cluster, asked):
        self.clock = cluster.clock

    def poll(self, replies, failures, seconds):
        type(self).polls += 1
        self.clock.wait(replies, seconds, concurrent.futures.FIRST_COMPLETED)
        return self.found

    def outlasts(self, seconds):
        return seconds is not None and self.old

    def waits(self):
        return {}


@pytest.fixture(autouse=True)
def watcher(monkeypatch):
    monkeypatch.setattr(module, "Watcher", FakeWatcher)
    for name, value in (("polls", 0), ("old", False), ("found", None), ("suspicion", None)):
        monkeypatch.setattr(FakeWatcher, name, value)
    monkeypatch.setattr(control, "sample", lambda cluster, ranks: {})
    return FakeWatcher


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def busy(clock):
    """A request to two ranks, which nobody ends."""
    return request_with([reply(done=False), reply(done=False)], clock=clock)


def case_of(*stuck):
    return SimpleNamespace(stuck=frozenset(stuck))


# -- its exits ------------------------------------------------------------------------------------


def test_what_has_ended_is_left_alone_with_a_time_limit_or_without(clock):
    sent = request_with([reply("ok"), reply(failed("ValueError"))], clock=clock)
    assert follow(sent).kind == ""
    assert follow(sent, timeout=0).kind == ""
    assert clock.time == 0


def test_what_is_short_is_not_watched(clock, busy, watcher):
    for rank in range(2):
        clock.at(times.UNWATCHED / 2, lambda r=rank: busy.replies[r].set_result("ok"))
    assert follow(busy).kind == ""
    assert clock.time == times.UNWATCHED / 2
    assert watcher.polls == 0


def test_it_ends_with_the_last_reply(clock, busy, watcher):
    clock.at(30.01, lambda: busy.replies[1].set_result("ok"))
    clock.at(77.03, lambda: busy.replies[0].set_result("ok"))
    assert follow(busy, timeout=100, suspect=60).kind == ""
    assert clock.time == 77.03
    assert watcher.polls > 1


def test_a_death_is_an_exit_though_others_are_busy(clock, busy):
    def die():
        busy.cluster.deaths[1] = -9

    clock.at(5, die)
    ending = follow(busy)
    assert ending.kind == "died"
    assert "killed from outside" in ending.hint
    assert busy.busy() == [0]
    assert 5 <= clock.time <= 5 + times.TICK


def test_a_deadlock_is_an_exit(clock, busy, watcher):
    case = case_of(1)
    clock.at(5, lambda: setattr(watcher, "found", case))
    ending = follow(busy, timeout=60)
    assert (ending.kind, ending.case) == ("deadlock", case)
    assert 5 <= clock.time <= 5 + times.TICK


def test_a_deadlock_of_ranks_that_were_not_asked_is_none(clock, busy, watcher):
    watcher.found = case_of(3)
    assert follow(busy, timeout=60).kind == "timeout"


def test_a_suspicion_is_an_exit_once_it_is_old(clock, busy, watcher):
    watcher.suspicion = Suspicion(case_of(0, 1), 10.0, clock)
    clock.at(70, lambda: setattr(watcher, "old", True))
    ending = follow(busy, suspect=60)
    assert (ending.kind, ending.case) == ("suspected", watcher.suspicion.case)
    assert 70 <= clock.time <= 70 + 2 * times.TICK


def test_a_time_limit_is_an_exit(clock):
    sent = request_with([reply(), reply(done=False)], clock=clock)
    assert follow(sent, timeout=20).kind == "timeout"
    assert clock.time == pytest.approx(20)
    assert sent.busy() == [1]


@pytest.mark.parametrize("timeout", [0.0, times.UNWATCHED / 2])
def test_a_time_limit_may_be_shorter_than_what_is_not_watched(clock, busy, timeout):
    assert follow(busy, timeout=timeout).kind == "timeout"
    assert clock.time == pytest.approx(timeout, abs=1e-6)


@pytest.mark.parametrize("seconds", [times.UNWATCHED / 2, 7.1])
def test_the_stop_button_is_an_exit(clock, busy, seconds):
    clock.press_at(seconds)
    assert follow(busy, timeout=60).kind == "interrupted"
    assert clock.time == seconds
    assert busy.busy() == [0, 1]


def test_a_busy_machine_does_not_change_the_time_limit(clock, busy, monkeypatch):
    monkeypatch.setattr(times, "pace", SimpleNamespace(factor=20.0))
    assert follow(busy, timeout=20).kind == "timeout"
    assert 20 <= clock.time <= 20 + 2 * times.TICK


# -- what is told meanwhile -----------------------------------------------------------------------


def test_every_tick_shows_what_is_written(clock):
    sent = request_with([reply(stdout="hello\n", done=False), reply()], clock=clock)
    seen = []
    follow(
        sent, on_tick=lambda texts, look, suspicion: seen.append((texts(), suspicion)), timeout=1
    )
    assert 2 < len(seen) < 6
    assert seen[0] == (({0: "hello\n", 1: ""}, {0: "", 1: ""}), None)


def test_an_error_that_a_tick_raises_as_a_stop_does_is_one(busy):
    def tick(texts, look, suspicion):
        raise KeyboardInterrupt

    assert follow(busy, on_tick=tick).kind == "interrupted"


# -- what is only suspected -----------------------------------------------------------------------


def test_a_suspicion_ends_nothing_where_somebody_looks_on(clock, busy, watcher):
    watcher.suspicion, watcher.old = Suspicion(case_of(0, 1), 0.0, clock), True
    ending = follow(busy, timeout=1000)
    assert (ending.kind, ending.case) == ("timeout", watcher.suspicion.case)


def test_a_suspicion_of_ranks_that_were_not_asked_is_none(clock, busy, watcher):
    watcher.suspicion, watcher.old = Suspicion(case_of(7), -60.0, clock), True
    told = []
    ending = follow(busy, suspect=1, timeout=10, on_tick=lambda *args: told.append(args[2]))
    assert (ending.kind, ending.case) == ("timeout", None)
    assert set(told) == {None}


def test_what_is_proved_goes_before_what_is_suspected(clock, busy, watcher):
    watcher.suspicion, watcher.old = Suspicion(case_of(0, 1), -60.0, clock), True
    watcher.found = case_of(0)
    ending = follow(busy, suspect=1)
    assert (ending.kind, ending.case) == ("deadlock", watcher.found)


def test_a_tick_knows_what_is_suspected_and_a_stop_carries_it(clock, busy, watcher):
    watcher.suspicion = Suspicion(case_of(0, 1), 0.0, clock)
    told = []
    clock.press_at(3.1)
    ending = follow(busy, on_tick=lambda *args: told.append(args[2]))
    assert (ending.kind, ending.case) == ("interrupted", watcher.suspicion.case)
    assert told
    assert all(suspicion is watcher.suspicion for suspicion in told)
