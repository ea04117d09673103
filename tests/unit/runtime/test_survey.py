"""How long ``lab.status()`` looks at ranks that may wait for one another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from labkit import times
from labkit.runtime import control, watchdog
from labkit.runtime.control import survey
from labkit.runtime.watchdog import find_fault
from labkit.wire.samples import Sample, Wait
from labkit.wire.state import RankState
from tests.support.virtual_clock import VirtualClock


@pytest.fixture(params=[1.0, 20.0], ids=["idle", "busy"])
def factor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Let this machine be idle, and as busy as can be."""
    monkeypatch.setattr(times, "pace", SimpleNamespace(factor=request.param))
    return float(request.param)


def state(rank: int, what: str) -> RankState:
    return RankState(rank, "host", 70 + rank, "cpu", "gloo", what)


@pytest.fixture
def cluster() -> Any:
    places = [SimpleNamespace(**vars(state(r, ""))) for r in range(2)]
    return SimpleNamespace(clock=VirtualClock(), asked={0, 1}, places=places, deaths={})


def test_a_rank_waits_if_it_stands_still_between_two_looks(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    sampled: list[tuple[float, list[int]]] = []

    def sample(cluster: Any, ranks: list[int]) -> dict[int, Sample]:
        sampled.append((cluster.clock.time, ranks))
        return {1: Sample(1, "waiting", True, Wait("recv", (), peer=0))}

    monkeypatch.setattr(control, "list_states", lambda c: [state(0, "idle"), state(1, "running")])
    monkeypatch.setattr(control, "sample", sample)
    assert [s.state for s in survey(cluster)] == ["idle", "waiting"]
    assert sampled == [(0, [1]), (pytest.approx(0.25 * factor), [1])]


def test_idle_ranks_are_looked_at_once(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "list_states", lambda c: [state(0, "idle"), state(1, "idle")])
    survey(cluster)
    assert cluster.clock.time == 0


class FakeWatcher:
    """Look on; find and suspect nothing."""

    suspicion = None

    def __init__(self, cluster: Any, ranks: list[int]) -> None:
        self.clock = cluster.clock

    def poll(self, replies: object, failures: object, seconds: float) -> None:
        self.clock.sleep(seconds)


def test_a_deadlock_is_looked_for_for_a_bounded_time(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    monkeypatch.setattr(watchdog, "Watcher", FakeWatcher)
    assert find_fault(cluster, [state(0, "running")]) == []
    assert cluster.clock.time == 0
    assert find_fault(cluster, [state(0, "waiting")]) == []
    assert cluster.clock.time == pytest.approx(1.0 * factor, abs=2 * times.FAULT_TICK)
