"""What is waited for, and how it is said to have ended; nothing is done about it yet."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from labkit import times
from labkit.runtime import follow as module
from labkit.runtime.follow import follow
from labkit.runtime.watchdog import Suspicion
from tests.support.requests import failed, reply, request_with


class FakeWatcher:
    """Watch nothing; find and suspect what it was told to."""

    found = None
    suspicion = None
    again = 0  #: how many times it was asked to look once more

    def __init__(self, cluster, asked):
        self.asked = asked

    def look(self, replies, failures, seconds):
        time.sleep(0.01)
        return self.found

    def look_again(self):
        type(self).again += 1

    def waits(self):
        return {}


@pytest.fixture(autouse=True)
def watcher(monkeypatch):
    monkeypatch.setattr(module, "Watcher", FakeWatcher)
    monkeypatch.setattr(FakeWatcher, "again", 0)
    monkeypatch.setattr(times, "UNWATCHED", 0.01)
    monkeypatch.setattr(module, "sample", lambda cluster, ranks: {})
    return FakeWatcher


def test_what_ends_by_itself_is_left_alone_with_a_time_limit_or_without():
    sent = request_with([reply("ok"), reply(failed("ValueError"))])
    assert follow(sent).kind == ""
    assert follow(sent, timeout=0).kind == ""


def test_a_time_limit_is_an_ending():
    sent = request_with([reply(), reply(done=False)])
    start = time.monotonic()
    assert follow(sent, timeout=0.1).kind == "timeout"
    assert 0.1 <= time.monotonic() - start < 5
    assert sent.busy() == [1]


def test_a_death_is_an_ending_though_others_are_busy():
    sent = request_with([reply(done=False), reply(done=False)])
    sent.cluster.deaths[1] = -9
    ending = follow(sent)
    assert ending.kind == "died"
    assert "killed from outside" in ending.hint
    assert sent.busy() == [0]


def test_a_deadlock_counts_if_a_rank_that_was_asked_is_in_it(watcher, monkeypatch):
    sent = request_with([reply(done=False), reply(done=False)])
    case = SimpleNamespace(stuck=frozenset({1}))
    monkeypatch.setattr(watcher, "found", case)
    ending = follow(sent)
    assert (ending.kind, ending.case) == ("deadlock", case)
    monkeypatch.setattr(watcher, "found", SimpleNamespace(stuck=frozenset({3})))
    assert follow(sent, timeout=0.05).kind == "timeout"


def test_every_tick_shows_what_is_written_and_stop_is_an_ending():
    sent = request_with([reply(stdout="hello\n", done=False), reply()])
    seen = []

    def tick(texts, states, suspicion):
        assert suspicion is None
        seen.append(texts())
        if len(seen) == 3:
            raise KeyboardInterrupt

    assert follow(sent, on_tick=tick).kind == "interrupted"
    assert seen == [({0: "hello\n", 1: ""}, {0: "", 1: ""})] * 3


# -- what is only suspected -----------------------------------------------------------------------


def busy():
    return request_with([reply(done=False), reply(done=False)])


def suspected(seconds, stuck=(0, 1)):
    """Return a suspicion that has lasted for some seconds."""
    case = SimpleNamespace(stuck=frozenset(stuck))
    return Suspicion(case, time.monotonic() - seconds)


def test_a_suspicion_ends_nothing_where_somebody_looks_on(watcher, monkeypatch):
    monkeypatch.setattr(watcher, "suspicion", suspected(1000))
    ending = follow(busy(), timeout=0.1)
    assert (ending.kind, ending.case) == ("timeout", watcher.suspicion.case)
    assert watcher.again == 0


def test_a_suspicion_ends_a_request_after_its_time_and_one_more_look(watcher, monkeypatch):
    monkeypatch.setattr(watcher, "suspicion", suspected(0.9))
    started = time.monotonic()
    ending = follow(busy(), suspect=1.0)
    assert time.monotonic() - started >= 0.1
    assert (ending.kind, ending.case) == ("suspected", watcher.suspicion.case)
    assert watcher.again == 1


def test_a_suspicion_that_the_last_look_does_not_confirm_ends_nothing(watcher, monkeypatch):
    def look_again(self):
        watcher.again += 1
        watcher.suspicion = None

    monkeypatch.setattr(watcher, "suspicion", suspected(60))
    monkeypatch.setattr(watcher, "look_again", look_again)
    ending = follow(busy(), suspect=1.0, timeout=0.1)
    assert (ending.kind, ending.case, watcher.again) == ("timeout", None, 1)


def test_a_suspicion_of_ranks_that_were_not_asked_is_none(watcher, monkeypatch):
    monkeypatch.setattr(watcher, "suspicion", suspected(60, stuck=(7,)))
    told = []
    ending = follow(busy(), suspect=1.0, timeout=0.1, on_tick=lambda *args: told.append(args[2]))
    assert (ending.kind, ending.case) == ("timeout", None)
    assert set(told) == {None}


def test_what_is_proved_goes_before_what_is_suspected(watcher, monkeypatch):
    case = SimpleNamespace(stuck=frozenset({0}))
    monkeypatch.setattr(watcher, "suspicion", suspected(60))
    monkeypatch.setattr(watcher, "found", case)
    ending = follow(busy(), suspect=1.0)
    assert (ending.kind, ending.case) == ("deadlock", case)


def test_a_tick_knows_what_is_suspected_and_a_stop_carries_it(watcher, monkeypatch):
    monkeypatch.setattr(watcher, "suspicion", suspected(60))

    def stop(texts, look, suspicion):
        assert suspicion is watcher.suspicion
        raise KeyboardInterrupt

    ending = follow(busy(), on_tick=stop)
    assert (ending.kind, ending.case) == ("interrupted", watcher.suspicion.case)
