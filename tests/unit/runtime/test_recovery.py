"""In what order ranks are interrupted and freed, and how long each of them is waited for."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from labkit import times
from labkit.runtime import control, recovery
from labkit.wire.requests import AskConnections, AskWait, Connections, Count, Shut, Waiting, Wake
from labkit.wire.samples import Wait
from tests.support.virtual_clock import VirtualClock

ALL = range(3)


@pytest.fixture(autouse=True)
def _no_wait_but_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        raise AssertionError(f"sleeps {seconds} s beside the clock")

    monkeypatch.setattr(time, "sleep", sleep)


class Ranks:
    """Three busy ranks that are only written down, and what is done about them, at which time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock()
        self.here: set[int] = set(ALL)  #: whose processes are on this host
        self.stopped: set[int] = set()  #: whose processes are stopped
        self.silent: set[int] = set()  #: that give no answer, the first time
        self.left = set(ALL)  #: that are busy
        self.done: list[tuple[float, str, list[int]]] = []
        monkeypatch.setattr(recovery, "free", self._free)
        monkeypatch.setattr(control, "send_signal", self._send_signal)

    def local_process(self, rank: int) -> object:
        return rank in self.here or None

    def is_stopped(self, rank: int) -> bool:
        return rank in self.stopped

    def busy(self) -> list[int]:
        return sorted(self.left)

    def ends_at(self, seconds: float, *ranks: int) -> None:
        self.clock.at(seconds, lambda: self.left.difference_update(ranks))

    def _free(self, cluster: object, ranks: list[int]) -> list[int]:
        self._note("free", ranks)
        silent, self.silent = self.silent, set()
        return [rank for rank in ranks if rank not in silent]

    def _send_signal(self, cluster: object, ranks: list[int], signum: str) -> None:
        self._note(signum, ranks)

    def _note(self, what: str, ranks: list[int]) -> None:
        self.done.append((self.clock.time / times.pace.factor, what, list(ranks)))

    def seen(self) -> list[tuple[float, str, list[int]]]:
        """Return what was done, with the times as multiples of the pace."""
        return [(pytest.approx(when, abs=1e-6), what, ranks) for when, what, ranks in self.done]


@pytest.fixture(params=[1.0, 20.0], ids=["idle", "busy"])
def factor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Let this machine be idle, and as busy as can be."""
    pace = times.Pace()
    pace.note(request.param * pace.REFERENCE)
    monkeypatch.setattr(times, "pace", pace)
    assert pace.factor == request.param
    return float(request.param)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch, factor: float) -> Any:
    return Ranks(monkeypatch)


def test_ranks_are_freed_and_those_beside_them_interrupted(ranks: Ranks, factor: float) -> None:
    ranks.ends_at(0.3 * factor, 0, 1, 2)
    assert recovery.end(ranks, ranks.busy, [0, 1]) == []
    assert ranks.seen() == [(0, "SIGINT", [2]), (0, "free", [0, 1])]
    assert ranks.clock.time == pytest.approx(0.3 * factor)


def test_one_that_catches_the_error_is_interrupted_and_freed_again(
    ranks: Ranks, factor: float
) -> None:
    ranks.ends_at(0.1 * factor, 0, 2)
    ranks.ends_at(1.2 * factor, 1)
    assert recovery.end(ranks, ranks.busy, [0, 1]) == []
    assert ranks.seen() == [
        (0, "SIGINT", [2]),
        (0, "free", [0, 1]),
        (0.5, "SIGINT", [1]),
        (0.5, "free", [1]),
        (1.0, "free", [1]),
    ]
    assert ranks.clock.time == pytest.approx(1.2 * factor)


def test_ranks_that_were_seen_to_wait_are_waited_for_longer_than_after_a_stop(
    ranks: Ranks, factor: float
) -> None:
    ranks.ends_at(0, 0, 2)
    assert recovery.end(ranks, ranks.busy, [1]) == [1]
    free_again = [when for when, what, _ in ranks.done if what == "free"]
    assert free_again == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4], abs=1e-6)
    assert ranks.clock.time == pytest.approx(4.5 * factor)


def test_after_a_stop_somebody_looks_on(ranks: Ranks, factor: float) -> None:
    ranks.ends_at(0, 0, 2)
    assert recovery.end(ranks, ranks.busy, [1], seen=False) == [1]
    assert ranks.seen()[2:] == [(0.5, "SIGINT", [1]), (0.5, "free", [1])]
    assert ranks.clock.time == pytest.approx(0.9 * factor)


def test_a_rank_that_answers_late_was_seen_to_wait_and_comes_back(
    ranks: Ranks, factor: float
) -> None:
    """It may be importing a library, or have many beside it."""
    ranks.silent = {1}
    ranks.ends_at(0.1 * factor, 0, 2)
    ranks.ends_at(0.6 * factor, 1)
    assert recovery.end(ranks, ranks.busy, [0, 1]) == []


def test_a_rank_whose_process_is_stopped_holds_nobody(ranks: Ranks, factor: float) -> None:
    ranks.silent = ranks.stopped = {1}
    ranks.ends_at(0.1 * factor, 0, 2)
    assert recovery.end(ranks, ranks.busy, [0, 1]) == [1]
    assert ranks.clock.time == pytest.approx(0.1 * factor)


def test_after_the_stop_button_one_that_does_not_answer_holds_nobody(
    ranks: Ranks, factor: float
) -> None:
    ranks.silent = {1}
    ranks.ends_at(0.1 * factor, 0, 2)
    assert recovery.end(ranks, ranks.busy, [0, 1], seen=False) == [1]
    assert ranks.clock.time == pytest.approx(0.1 * factor)


def test_on_another_host_one_may_be_out_of_reach_for_a_moment(ranks: Ranks, factor: float) -> None:
    ranks.silent, ranks.here = {1}, {0, 2}
    ranks.ends_at(0.1 * factor, 0, 2)
    ranks.ends_at(0.6 * factor, 1)
    assert recovery.end(ranks, ranks.busy, [0, 1], seen=False) == []


def test_ranks_that_answer_are_freed_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receive from any rank gets a byte, a wait for a thread an interrupt; then all is shut."""
    waits = [Wait("recv_any", ((("0", (0, 1)), 1),)), Wait("thread")]
    clock, done = VirtualClock(), list[object]()
    cluster: Any = SimpleNamespace(clock=clock, size=2, deaths={}, local_process=lambda rank: None)

    def ask(cluster: object, questions: dict[int, Any], within: object = None) -> dict[int, Any]:
        done.append(sorted((rank, type(question)) for rank, question in questions.items()))
        answer = {
            AskWait: lambda rank: Waiting(waits[rank]),
            AskConnections: lambda rank: Connections(()),
        }
        return {r: answer.get(type(q), lambda rank: Count(1))(r) for r, q in questions.items()}

    monkeypatch.setattr(control, "ask", ask)
    monkeypatch.setattr(control, "send_signal", lambda c, ranks, *_: done.append(ranks))
    assert recovery.free(cluster, [0, 1]) == [0, 1]
    assert done == [
        [(0, AskWait), (1, AskWait)],
        [0],
        [(1, Wake)],
        [1],
        [(0, AskConnections), (1, AskConnections)],
        [(0, Shut), (1, Shut)],
    ]
    assert clock.time == 0


# -- the stop button ------------------------------------------------------------------------------


def test_ranks_that_an_interrupt_ends_are_not_freed(ranks: Ranks, factor: float) -> None:
    ranks.ends_at(0.2 * factor, 0, 1, 2)
    assert recovery.interrupt(ranks, ranks.busy, "SIGTERM") == ([], [])
    assert ranks.seen() == [(0, "SIGTERM", [0, 1, 2])]
    assert ranks.clock.time == pytest.approx(0.2 * factor)


def test_those_that_it_does_not_end_are_freed(ranks: Ranks, factor: float) -> None:
    ranks.ends_at(0.2 * factor, 0)
    ranks.ends_at(0.4 * factor, 1, 2)
    assert recovery.interrupt(ranks, ranks.busy, "SIGINT") == ([1, 2], [])
    assert ranks.seen() == [
        (0, "SIGINT", [0, 1, 2]),
        (0.25, "SIGINT", []),
        (0.25, "free", [1, 2]),
    ]


def test_ranks_that_nothing_ends_are_left_after_a_bounded_time(ranks: Ranks, factor: float) -> None:
    assert recovery.interrupt(ranks, ranks.busy, "SIGINT") == ([0, 1, 2], [0, 1, 2])
    assert ranks.clock.time == pytest.approx((0.25 + 0.5 + 0.4) * factor)


def test_ranks_that_have_seen_the_interrupt_are_waited_for(ranks: Ranks, factor: float) -> None:
    ranks.ends_at(1.5 * factor, 1)
    assert recovery.wait_for(ranks, ranks.busy, [1]) == [0, 2]
    assert ranks.clock.time == pytest.approx(1.5 * factor)
    assert recovery.wait_for(ranks, ranks.busy, [2]) == [0, 2]
    assert ranks.clock.time == pytest.approx(3.5 * factor)
