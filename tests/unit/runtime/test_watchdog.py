"""Which ranks are compared, and how long a suspicion lasts, with ranks that a test makes up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from labkit import times
from labkit.runtime import control, outside, watchdog
from labkit.wire.samples import Group, Issuer, Sample, Wait

KEY = ("0", (0, 1))
WORLD = {KEY: Group(KEY, 0, {}, {}, 0)}


def receives(rank: int, *issuers: Issuer, still: bool = True) -> Sample:
    """Make a rank that waits for a message of the other one."""
    wait = Wait("recv", ((KEY, 1),), peer=1 - rank)
    return Sample(rank, "waiting", still, wait, (7 + rank,), WORLD, issuers=issuers)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> dict[int, Sample]:
    """What the two ranks answer; one that is not in here does not."""
    answers: dict[int, Sample] = {}
    monkeypatch.setattr(
        watchdog, "sample", lambda c, asked: {r: answers[r] for r in asked if r in answers}
    )
    monkeypatch.setattr(times, "CONFIRM", times.Bound(0.0))
    monkeypatch.setattr(control, "post", lambda cluster, rank, question: None)
    monkeypatch.setattr(outside, "doubts", lambda *about: ())
    return answers


def watch(waiting: Mapping[int, Sample]) -> watchdog.Watcher:
    """Follow two busy ranks, of which some have said that they wait."""
    cluster = SimpleNamespace(
        busy_ranks=lambda: [0, 1], size=2, deaths={}, client=None, has_strangers=lambda: False
    )
    watcher = watchdog.Watcher(cluster, [0, 1])
    for rank, sample in waiting.items():
        watcher.waiting[rank] = sample
        watcher._told[rank] = 0.0
    return watcher


def look(watcher: watchdog.Watcher) -> frozenset[int]:
    """Look once; return the ranks of a deadlock that is proved."""
    watcher.look_again()
    case = watcher.look([], {}, 0.0)
    return frozenset() if case is None else case.stuck


def test_a_rank_out_of_reach_for_a_moment_is_asked_again(ranks: dict[int, Sample]) -> None:
    """It has said once that it waits, and will not say so again."""
    both = {rank: receives(rank) for rank in range(2)}
    watcher = watch(both)
    ranks[0] = both[0]
    assert look(watcher) == frozenset()
    ranks[1] = both[1]
    assert look(watcher) == {0, 1}


def test_a_rank_that_has_run_since_is_not_asked_again(ranks: dict[int, Sample]) -> None:
    both = {rank: receives(rank) for rank in range(2)}
    watcher = watch(both)
    ranks[0], ranks[1] = both[0], Sample(1, "computing", stamp=(9,), groups=WORLD)
    look(watcher)
    assert watcher.waiting.keys() == {0}


THREAD = Issuer("a thread of rank {rank} is alive: Thread-1 (tick)")


def test_a_suspicion_lasts_while_a_byte_moves_by_chance(ranks: dict[int, Sample]) -> None:
    """A receive from any rank ends only if nothing is on its way: that may move for a look."""
    group = {KEY: Group(KEY, 0, {}, {("recv_any", -1, 0): 1}, 0)}
    wait = Wait("recv", ((KEY, 1),), peer=1)
    own = Sample(0, "waiting", True, wait, (7,), group)
    sent = {KEY: Group(KEY, 0, {}, {("send", 0, 0): 1}, 0)}
    other = dataclasses.replace(receives(1, THREAD), groups=sent)
    ranks.update({0: own, 1: other})
    watcher = watch(ranks)
    look(watcher)
    assert watcher.suspicion is not None
    ranks[0] = dataclasses.replace(own, still=False)
    look(watcher)
    assert watcher.suspicion is not None


def test_a_suspicion_ends_at_once_when_somebody_can_go_on(ranks: dict[int, Sample]) -> None:
    ranks.update({rank: receives(rank, THREAD) for rank in range(2)})
    watcher = watch(ranks)
    look(watcher)
    assert watcher.suspicion is not None
    ranks[1] = receives(1, dataclasses.replace(THREAD, ends=True))
    look(watcher)
    assert watcher.suspicion is None
