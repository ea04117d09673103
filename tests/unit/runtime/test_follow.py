"""What is waited for, and how it is said to have ended; nothing is done about it yet."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from labkit.runtime import follow as module
from labkit.runtime.follow import follow
from tests.support.requests import failed, reply, request_with


class FakeWatcher:
    """Watch nothing; find what it was told to."""

    found = None

    def __init__(self, cluster, asked):
        self.asked = asked

    def look(self, replies, failures, seconds):
        time.sleep(0.01)
        return self.found

    def waits(self):
        return {}


@pytest.fixture(autouse=True)
def watcher(monkeypatch):
    monkeypatch.setattr(module, "Watcher", FakeWatcher)
    monkeypatch.setattr(module, "UNWATCHED_SECONDS", 0.01)
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

    def tick(texts, states):
        seen.append(texts())
        if len(seen) == 3:
            raise KeyboardInterrupt

    assert follow(sent, on_tick=tick).kind == "interrupted"
    assert seen == [({0: "hello\n", 1: ""}, {0: "", 1: ""})] * 3
