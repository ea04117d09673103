"""Looks at the main thread: never a wait while it runs, told once, forgotten when it goes on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from labkit.base import times
from labkit.rank import os_threads
from labkit.rank.observe import (
    blocked_call,
    device_wait,
    issuers,
    sampler,
)
from labkit.wire.requests import Watched
from labkit.wire.samples import Issuer, Wait


class Rank:
    """A main thread whose clock and frame the test sets, and whose looks the test triggers."""

    def __init__(self, monkeypatch):
        self.main, self.wait, self.now = 100, None, 0.0
        self.computes = self.sleeps = self.locked = self.woken = False
        self.busy, self.blind = True, False
        self.clocks = ()  #: of other threads that wait
        self.others = []  #: issuers
        self.pending = []
        self.eyes = sampler.Sampler(lambda seconds, function: self.pending.append(function))
        self.eyes._threads = SimpleNamespace(
            look=lambda: None,
            stamp=lambda: self.clocks,
            issuers=lambda: self.others,
            is_alone=lambda: not self.others,
        )
        self.eyes._traffic = SimpleNamespace(look=lambda: None, is_still=lambda: True)
        self.eyes._computes = lambda: self.computes
        for module, name, value in (
            (os_threads, "main_clock", lambda: self.main),
            (os_threads, "main_runs", lambda: self.woken),
            (blocked_call, "find_maker", lambda frame: None),
            (blocked_call, "describe", lambda frame: self.wait),
            (device_wait, "is_wait", lambda frame: False),
            (device_wait, "is_pending", lambda: False),
            (os_threads, "waits_for_time", lambda: self.sleeps),
            (os_threads, "waits_for_lock", lambda: self.locked),
            (issuers, "others", lambda: iter(())),
            (sampler, "is_busy", lambda: self.busy),
            (sampler.torch_frames, "is_blind", lambda frame: self.blind),
            (sampler.names, "blindness", lambda: ()),
            (sampler.steady, "now", lambda: self.now),
        ):
            monkeypatch.setattr(module, name, value)

    def look(self, count=1):
        for _ in range(count):
            self.now += times.MAIN_THREAD_LOOK
            due, self.pending = self.pending, []
            for function in due:
                function()


@pytest.fixture
def rank(monkeypatch):
    return Rank(monkeypatch)


def test_a_wait_is_told_once_after_two_looks_that_agree(rank):
    told = []
    rank.wait = Wait("recv")
    rank.eyes.watch((), told.append)
    assert told == []
    rank.look(5)
    assert [answer.sample.state for answer in told] == ["waiting"]
    assert told[0].sample.stamp == (100,)


def test_a_rank_whose_cell_has_ended_looks_no_further_and_tells_of_the_next_cell(rank):
    told, looks = [], []
    rank.eyes._threads.look = lambda: looks.append(rank.now)
    rank.eyes.watch((), told.append)
    rank.busy = False
    rank.look(round((times.LOOKS_LINGER + 1) / times.MAIN_THREAD_LOOK))
    assert looks  # somebody could ask again just now
    assert max(looks) <= times.LOOKS_LINGER
    rank.busy, rank.wait = True, Wait("recv")
    rank.main += 1
    rank.look(5)
    assert [answer.sample.state for answer in told] == ["waiting"]


def test_a_thread_that_runs_is_never_said_to_wait(rank):
    told = []
    rank.wait = Wait("recv")  # what its frame looks like
    rank.eyes.watch((), told.append)
    for _ in range(10):
        rank.main += 1
        rank.look()
    assert told == []


def test_a_thread_that_was_woken_and_has_not_run_yet_does_not_wait(rank):
    told = []
    rank.wait, rank.woken = Wait("recv"), True
    rank.eyes.watch((), told.append)
    rank.look(5)
    assert told == []
    rank.woken = False
    rank.look(5)
    assert len(told) == 1


def test_a_wait_inside_torch_counts_once_no_thread_computes_for_it(rank):
    """A backward, say: its frame looks the same while autograd's threads compute."""
    told = []
    rank.wait, rank.blind, rank.computes = Wait("collective"), True, True
    rank.eyes.watch((), told.append)
    rank.look(5)
    assert told == []
    rank.computes = False
    rank.look(5)
    assert [answer.sample.wait.kind for answer in told] == ["collective"]


def test_a_thread_that_ticks_beside_a_plain_wait_does_not_hide_it(rank):
    told = []
    rank.wait, rank.computes = Wait("recv"), True
    rank.eyes.watch((), told.append)
    rank.look(5)
    assert len(told) == 1


def test_a_rank_that_sleeps_waits_for_nobody(rank):
    told = []
    rank.sleeps = rank.locked = True
    rank.eyes.watch((), told.append)
    rank.look(5)
    assert told == []
    assert rank.eyes.sample().state == "computing"


def test_a_rank_that_waits_for_a_lock_in_c_does_so_with_a_doubt(rank):
    told = []
    rank.locked = True
    rank.eyes.watch((), told.append)
    rank.look(5)
    assert told[0].sample.wait.kind == "thread"
    assert told[0].sample.wait.doubt == "rank {rank} waits for a lock, or for something in C"


def test_a_wait_for_a_thread_that_is_not_there_is_doubted(rank):
    rank.wait = Wait("thread")
    rank.eyes.sample()
    rank.look(5)
    assert rank.eyes.sample().wait.doubt == "rank {rank} waits for something in its own process"
    rank.others = [Issuer("a thread")]
    rank.look(1)
    assert rank.eyes.sample().wait.doubt == ""


def test_what_else_may_issue_calls_is_told_of_ranks_that_do_not_compute(rank):
    rank.others = [Issuer("a thread")]
    assert rank.eyes.sample().issuers == ()
    rank.busy = False
    sample = rank.eyes.sample()
    assert (sample.state, sample.issuers) == ("idle", (Issuer("a thread"),))


def test_a_thread_that_runs_changes_the_stamp_if_it_waited(rank):
    rank.wait = Wait("recv")
    rank.clocks = (7,)
    rank.eyes.sample()
    rank.look(5)
    assert rank.eyes.sample().stamp == (100, 7)
    rank.clocks = (8,)
    assert rank.eyes.sample().stamp == (100, 8)


def test_a_rank_that_asks_in_short_sleeps_for_the_others_stands_still(rank, monkeypatch):
    """As where a group is made: the same line of the same frame, and hardly any time used."""
    maker = sampler.main_frame()
    monkeypatch.setattr(blocked_call, "find_meeting", lambda frame: maker)
    monkeypatch.setattr(sampler, "main_frame", lambda: SPOT)
    told = []
    rank.wait = Wait("new_group")
    rank.eyes.watch((), told.append)
    for _ in range(5):
        rank.main += 10 * times.POLLING_NANOSECONDS  # whatever it takes to ask
        rank.look()
    assert [answer.sample.stamp[0] for answer in told] == [0]
    elsewhere = (x for x in ())  # a frame that stands still
    monkeypatch.setattr(sampler, "main_frame", lambda: elsewhere.gi_frame)
    for _ in range(5):
        rank.main += 1_000_000
        rank.look()
    assert rank.eyes.sample().state == "waiting"
    monkeypatch.setattr(blocked_call, "find_meeting", lambda frame: None)
    for _ in range(5):
        rank.main += 1_000_000
        rank.look()
    assert rank.eyes.sample().state == "computing"


#: A frame as far as it matters: where it stands.
SPOT = SimpleNamespace(f_lasti=4, f_code=None)


def test_a_wait_that_is_known_is_not_told_again_but_the_next_is(rank):
    told = []
    rank.wait = Wait("recv")
    rank.eyes.watch((100,), told.append)
    rank.look(5)
    assert told == []
    rank.main = 200
    rank.look(5)
    assert told[0].sample.stamp == (200,)


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
    rank.look(int(times.LOOKS_LINGER / times.MAIN_THREAD_LOOK) + 2)
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
    """One look that fails is not the last: who asked would wait forever."""
    told, original = [], rank.eyes._sample

    def fail():
        monkeypatch.setattr(rank.eyes, "_sample", original)
        raise RuntimeError

    rank.wait = Wait("recv")
    rank.eyes.watch((), told.append)
    monkeypatch.setattr(rank.eyes, "_sample", fail)
    rank.look(10)
    assert [answer.sample.state for answer in told] == ["waiting"]


def test_a_thread_that_spins_in_nccls_first_call_waits(rank, monkeypatch):
    told, held = [], [0]
    monkeypatch.setattr(device_wait, "holds", lambda frame: held[0] > 0)
    monkeypatch.setattr(device_wait, "describe", lambda frame: Wait("device", partial=True))
    monkeypatch.setattr(sampler.device, "progress", lambda: (1, held[0]))
    rank.eyes.watch((), told.append)

    def spin(count):
        for _ in range(count):
            rank.main += 1
            rank.look()

    rank.woken = True
    spin(5)
    assert told == []  # it computes, for all that can be seen
    held[0] = 7
    spin(5)
    assert [answer.sample.wait.kind for answer in told] == ["device"]
    rank.eyes.watch(told[0].sample.stamp, told.append)
    spin(5)
    assert len(told) == 1  # the same wait
    held[0] = 8
    spin(5)
    assert len(told) == 2
