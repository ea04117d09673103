"""What two samples of all ranks agree in, and when they are enough."""

from __future__ import annotations

from dataclasses import replace

from labkit.deadlock.confirmation import CONFIRM_TIMES, Confirmation
from labkit.deadlock.needs import Situation
from labkit.deadlock.wait_graph import Verdict
from labkit.wire.samples import Sample, Wait

WAITS = Sample(0, "waiting", True, Wait("recv", (), peer=1), (7,))
IDLE = Sample(1, "idle", True, stamp=(8,))
STUCK = Verdict(suspected=frozenset({0}))


def situation(*samples: Sample, gone: frozenset[int] = frozenset()) -> Situation:
    return Situation(len(samples), dict(enumerate(samples)), gone)


def agreed(first: Situation, second: Situation) -> dict[int, Sample]:
    return dict(Confirmation(first).agreed(second).samples)


def test_a_rank_that_has_run_in_between_is_left_out():
    first = situation(WAITS, IDLE)
    assert agreed(first, first) == {0: WAITS, 1: IDLE}
    assert agreed(first, situation(replace(WAITS, stamp=(9,)), IDLE)) == {1: IDLE}
    assert agreed(replace(first, samples={1: IDLE}), first) == {1: IDLE}


def test_an_idle_rank_that_is_gone_has_provided_all_that_it_ever_will():
    ran = replace(IDLE, stamp=(99,))
    second = situation(WAITS, ran, gone=frozenset({1}))
    assert agreed(situation(WAITS, IDLE), second)[1].state == "idle"
    assert 1 not in agreed(situation(WAITS, IDLE), situation(WAITS, ran))


def test_data_must_have_stood_still_in_both():
    moves = replace(WAITS, still=False)
    for first, second in ((WAITS, moves), (moves, WAITS)):
        assert not agreed(situation(first), situation(second))[0].still


def test_a_rank_that_may_still_turn_out_to_wait_is_sampled_again_but_not_for_ever():
    unclear = situation(WAITS, replace(IDLE, state="computing", stamp=()))
    confirmation = Confirmation(unclear)
    final = [confirmation.is_final(unclear, STUCK) for _ in range(CONFIRM_TIMES)]
    assert final == [False] * (CONFIRM_TIMES - 1) + [True]
    assert Confirmation(unclear).is_final(unclear, Verdict())
    assert Confirmation(situation(WAITS, IDLE)).is_final(situation(WAITS, IDLE), STUCK)


def test_a_rank_that_runs_on_is_waited_for_once_more():
    def runs(stamp: int) -> Situation:
        return situation(WAITS, replace(IDLE, state="computing", stamp=(stamp,)))

    confirmation = Confirmation(runs(1))
    assert not confirmation.is_final(runs(2), STUCK)
    assert confirmation.is_final(runs(3), STUCK)
