"""How long a broken process group waits for ranks that are busy with something earlier."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from labkit.base.errors import LabError
from labkit.runtime.process_group import GroupManager
from tests.support.virtual_clock import VirtualClock


@pytest.fixture
def group(monkeypatch, factor):
    """The broken group of two ranks, of which rank 1 is busy."""
    busy = {1}
    cluster = SimpleNamespace(
        size=2,
        deaths={},
        clock=VirtualClock(),
        busy=busy,
        is_busy=lambda rank: rank in busy,
        busy_ranks=lambda: sorted(busy),
    )
    made = GroupManager(cluster, join=True, timeout=600.0)
    made.broken = True
    monkeypatch.setattr(made, "_leave", lambda ranks, by: None)
    monkeypatch.setattr(made, "rebuild", lambda by: setattr(made, "broken", False))
    return made


def test_it_is_formed_anew_as_soon_as_all_are_free(group, factor):
    group.cluster.clock.at(4.9 * factor, group.cluster.busy.clear)
    group.check()
    assert not group.broken
    assert group.cluster.clock.time == pytest.approx(4.9 * factor)


def test_a_rank_that_stays_busy_is_named(group, factor):
    group.in_c = {1: "re.match, In[3], line 2"}
    with pytest.raises(LabError) as caught:
        group.check()
    assert str(caught.value).startswith("Rank 1 did not return from an earlier cell")
    assert "Rank 1 is still in C code, or in an import (re.match, In[3]" in str(caught.value)
    assert group.cluster.clock.time == pytest.approx(5 * factor)


def test_the_stop_button_ends_the_wait(group, factor):
    group.cluster.clock.press_at(1)
    with pytest.raises(KeyboardInterrupt):
        group.check()
    assert group.broken


def test_a_death_ends_the_wait(group, factor):
    def die():
        group.cluster.deaths[1] = -9
        group.cluster.busy.clear()

    group.cluster.clock.at(2, die)
    group.check()  # what runs next says so
    assert group.broken
    assert group.cluster.clock.time == 2
