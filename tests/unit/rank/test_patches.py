"""Patches of other libraries are applied each after those that it needs."""

from __future__ import annotations

from graphlib import CycleError

import pytest

from labkit.rank.patches import PATCHES, Patch, in_order


def patch(name: str, *needs: str) -> Patch:
    return Patch(name, "torch", "nothing", lambda rank: None, needs)


def test_each_comes_after_those_that_it_needs():
    table = [patch("wall", "floor"), patch("roof", "wall", "floor"), patch("floor")]
    assert [one.name for one in in_order(table)] == ["floor", "wall", "roof"]


def test_the_table_of_a_rank_has_an_order_and_names_that_differ():
    found = [one.name for one in in_order(PATCHES)]
    assert sorted(found) == sorted(one.name for one in PATCHES)
    for one in PATCHES:
        assert all(found.index(need) < found.index(one.name) for need in one.needs)


def test_what_needs_something_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="the patch 'roof' needs wall"):
        in_order([patch("roof", "wall")])


def test_two_that_need_one_another_are_refused():
    with pytest.raises(CycleError):
        in_order([patch("roof", "wall"), patch("wall", "roof")])
