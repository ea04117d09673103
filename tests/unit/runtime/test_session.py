"""A session holds ranks and their group until it is stopped, and checks what is asked of it."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.base.errors import LabError
from labkit.launch.placement import Place
from labkit.runtime import session as module
from labkit.runtime.session import Session
from labkit.wire.state import RankState
from tests.support.virtual_clock import VirtualClock


class FakeCluster:
    """Four ranks that are only written down."""

    def __init__(self, deaths=None):
        self.size = 4
        self.places: list[Any] = [Place(r, r, "host", 7, r, 4, "cpu", "gloo", 1) for r in range(4)]
        self.deaths = deaths or {}
        self.done: list[Any] = []

    def restart(self, ranks=None):
        self.done.append(("restart", ranks))

    def close(self):
        self.done.append("close")


def session(deaths=None):
    cluster = FakeCluster(deaths)
    done = cluster.done
    group = SimpleNamespace(
        join=False,
        settle=lambda ranks=None: done.append(("settle", ranks)),
        rebuild=lambda: done.append("rebuild"),
    )
    return Session(cluster, group), done


def test_after_the_stop_it_gives_nothing_away():
    lab, done = session()
    assert lab.cluster.places
    assert not lab.group.join
    lab.stop()
    lab.stop()
    assert done == ["close"]
    for reach in (lambda: lab.cluster, lambda: lab.group, lab.reset, lambda: lab.check_ranks(None)):
        with pytest.raises(LabError, match=r"This lab was stopped; labkit\.start\(\) gives"):
            reach()


@pytest.mark.parametrize(
    ("asked", "chosen"), [(None, [0, 1, 2, 3]), ([3, 1, 3], [1, 3]), (2, [2]), (range(2), [0, 1])]
)
def test_ranks_come_sorted_and_once(asked, chosen):
    assert session()[0].check_ranks(asked) == chosen


@pytest.mark.parametrize("asked", [[4], [-1], ["0"], []])
def test_what_is_no_rank_is_refused(asked):
    with pytest.raises(LabError, match=r"ranks go from 0 to 3|ranks must name at least one"):
        session()[0].check_ranks(asked)


def test_the_summary_is_what_is_known():
    lab, _ = session()
    assert lab.summary() == "4 ranks, gloo, cpu"
    assert session({2: "exit code 1"})[0].summary() == "4 ranks, gloo, cpu; rank 2 ended"
    lab.cluster.places[3] = Place(3, 3, "other", 7, 0, 1, "cuda:1", "gloo", 1)
    assert lab.summary() == "4 ranks on 2 hosts, gloo, cpu, cuda"
    lab.cluster.places.clear()  # a restart is under way
    assert lab.summary() == "4 ranks"
    lab.stop()
    assert lab.summary() == "stopped"


def test_a_reset_forms_the_group_also_where_the_learner_was_to_do_it():
    lab, done = session()
    lab.reset()
    assert lab.group.join
    assert done == ["rebuild"]
    with pytest.raises(LabError, match=r"^Rank 2 ended; lab\.restart\(ranks=\[2\]\) first\.$"):
        session({2: 1})[0].reset()


def test_a_restart_takes_the_ranks_that_have_ended_along():
    lab, done = session({1: 1})
    lab.restart([1, 3])
    lab.restart()
    assert done == [("restart", [1, 3]), ("settle", [1, 3]), ("restart", None), ("settle", None)]
    with pytest.raises(LabError, match=r"^Rank 1 ended too; .* lab\.restart\(ranks=\[1, 2\]\)\.$"):
        lab.restart([2])


def test_the_line_of_a_busy_rank_is_asked_for_a_few_times(monkeypatch, factor):
    """One that was just sent something is at none yet."""
    lab, _ = session()
    lab.restart()  # all that was to be replaced has been
    lab.cluster.clock, lab.cluster.is_busy = VirtualClock(), lambda rank: rank == 2
    at = SimpleNamespace(where="", line="")

    def look(cluster):
        states = (RankState(r, "host", 7, "cpu", "gloo", "running") for r in range(4))
        return [dataclasses.replace(s, where=at.where, line=at.line) for s in states]

    monkeypatch.setattr(module.control, "list_states", look)
    with pytest.raises(LabError, match=r"^Rank 2 is busy; nothing was changed\."):
        lab.check_idle()
    assert lab.cluster.clock.time == pytest.approx(0.15 * factor)
    lab.cluster.clock.at(0.2 * factor, lambda: vars(at).update(where="In[3], line 2", line="f()"))
    with pytest.raises(LabError, match=r"^Rank 2 is busy at In\[3\], line 2: f\(\); nothing"):
        lab.check_idle()
    assert lab.cluster.clock.time == pytest.approx(0.2 * factor, rel=0.01)
    lab.check_idle([0, 1, 3])
