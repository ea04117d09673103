"""Looks at the main thread: never a wait while it runs, told once, forgotten when it goes on."""

from __future__ import annotations

import pytest

from labkit.rank.observe import blocked_call, cpu_clock, sampler
from labkit.rank.observe.cpu_clock import Clock
from labkit.wire.requests import Watched
from labkit.wire.samples import Wait


class Rank:
    """A main thread whose clocks and frame the test sets, and whose looks the test triggers."""

    def __init__(self, monkeypatch):
        self.main, self.others, self.wait, self.now = 100, 7, None, 0.0
        self.pending = []
        self.eyes = sampler.Looker(lambda seconds, function: self.pending.append(function))
        monkeypatch.setattr(cpu_clock, "main_clock", lambda: self.main)
        monkeypatch.setattr(cpu_clock, "read", lambda: Clock(self.main, self.others, False))
        monkeypatch.setattr(blocked_call, "find_maker", lambda frame: None)
        monkeypatch.setattr(blocked_call, "describe", lambda frame: self.wait)
        monkeypatch.setattr(blocked_call, "other_threads_run_cells", lambda main: False)
        monkeypatch.setattr(sampler.time, "monotonic", lambda: self.now)

    def look(self, times=1):
        for _ in range(times):
            self.now += sampler.LOOK_SECONDS
            due, self.pending = self.pending, []
            for function in due:
                function()


@pytest.fixture
def rank(monkeypatch):
    return Rank(monkeypatch)


def test_a_wait_is_told_once_after_three_looks_that_agree(rank):
    told = []
    rank.wait = Wait("recv")
    rank.eyes.watch((), told.append)
    rank.look()
    assert told == []
    rank.look(5)
    assert [answer.sample.state for answer in told] == ["waiting"]
    assert told[0].sample.stamp == (100, 7)


def test_a_thread_that_runs_is_never_said_to_wait(rank):
    told = []
    rank.wait = Wait("recv")  # what its frame looks like
    rank.eyes.watch((), told.append)
    for _ in range(10):
        rank.main += 1
        rank.look()
    assert told == []


def test_another_thread_that_runs_counts_too(rank):
    told = []
    rank.wait = Wait("collective")
    rank.eyes.watch((), told.append)
    for _ in range(10):
        rank.others += 1
        rank.look()
    assert told == []


def test_a_wait_that_is_known_is_not_told_again_but_the_next_is(rank):
    told = []
    rank.wait = Wait("recv")
    rank.eyes.watch((100, 7), told.append)
    rank.look(5)
    assert told == []
    rank.main = 200
    rank.look(5)
    assert told[0].sample.stamp == (200, 7)


def test_a_newer_question_replaces_the_older(rank):
    first, second = [], []
    rank.eyes.watch((), first.append)
    rank.eyes.watch((), second.append)
    assert first == [Watched(None)]
    rank.wait = Wait("recv")
    rank.look(5)
    assert (len(first), len(second)) == (1, 1)


def test_looks_end_when_nobody_asks(rank):
    rank.eyes.sample()
    rank.look(int(sampler.LINGER_SECONDS / sampler.LOOK_SECONDS) + 2)
    assert rank.pending == []
    rank.eyes.sample()
    assert len(rank.pending) == 1


def test_a_description_that_fails_is_no_wait_and_looks_go_on(rank, monkeypatch):
    told = []

    def fail(frame):
        raise RuntimeError("an unknown torch")

    monkeypatch.setattr(blocked_call, "describe", fail)
    rank.eyes.watch((), told.append)
    rank.look(5)
    assert told == []
    monkeypatch.setattr(blocked_call, "describe", lambda frame: Wait("recv"))
    rank.look(5)
    assert len(told) == 1


def test_an_answer_that_fails_is_given_later(rank, monkeypatch):
    """One look that fails is not the last: who asked would wait for ever."""
    told, stock = [], rank.eyes._sample

    def fail():
        monkeypatch.setattr(rank.eyes, "_sample", stock)
        raise RuntimeError

    rank.wait = Wait("recv")
    rank.eyes.watch((), told.append)
    monkeypatch.setattr(rank.eyes, "_sample", fail)
    rank.look(10)
    assert [answer.sample.state for answer in told] == ["waiting"]
