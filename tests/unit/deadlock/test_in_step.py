"""Ranks in step: their next calls will meet one another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labkit.deadlock.in_step import in_step
from labkit.wire.samples import Entry, Group, Sample

WORLD = ("0", (0, 1))


def rank(last=0, posted=None, *, barriers=0, done=True, joined=True, made=1):
    entries = {last: Entry(last, "all_reduce", ((1,),), ("Float",), done)} if last else {}
    group = Group(WORLD, last, entries, posted or {}, barriers)
    return Sample(0, "idle", groups={WORLD: group}, joined=joined, made=made)


SENT = {("send", 1, 0): 2}

CASES = {
    "nothing yet": (rank(), rank(), True),
    "the same collectives": (rank(3), rank(3), True),
    "one more": (rank(3), rank(4), False),
    "one forgotten by the recorder": (rank(3), rank(-1), False),
    "one under way on both": (rank(3, done=False), rank(3, done=False), False),
    "one more monitored barrier": (rank(barriers=1), rank(), False),
    "as many receives as sends": (rank(posted=SENT), rank(posted={("recv", 0, 0): 2}), True),
    "one receive too few": (rank(posted=SENT), rank(posted={("recv", 0, 0): 1}), False),
    "another tag": (rank(posted=SENT), rank(posted={("recv", 0, 5): 2}), False),
    "from any: who sent is unknown": (
        rank(posted=SENT),
        rank(posted={("recv_any", -1, 0): 2}),
        True,
    ),
    "one group more": (rank(made=3), rank(made=2), False),
    "one has left the group": (rank(), Sample(1, "idle", joined=False), False),
}


@pytest.mark.parametrize("name", CASES)
def test_step(name):
    first, second, expected = CASES[name]
    assert in_step({0: first, 1: second}) is expected


def test_ranks_of_which_one_still_connects_a_group_are_not_in_step():
    assert not in_step({0: rank(), 1: replace(rank(), connecting=True)})


def test_groups_that_only_some_are_in_do_not_put_others_out_of_step():
    pair = ("1", (0, 1))
    inside = Sample(0, "idle", groups={pair: Group(pair, 2, {}, {}, 0)})
    assert in_step({0: inside, 1: inside, 2: Sample(2, "idle")})


def test_groups_that_their_members_make_alone_are_not_counted_against_the_others():
    alone = ("c0a18d8a1bf6f2a3", (0, 1))
    inside = Sample(0, "idle", groups={alone: Group(alone, 0, {}, {}, 0)}, made=2)
    assert in_step({0: inside, 1: inside, 2: Sample(2, "idle", made=1)})


def test_groups_that_their_members_make_alone_hide_no_other_that_one_rank_lacks():
    """Checks of one lab leave such groups behind, as meshes do; one was then stopped midway."""
    alone = ("c0a18d8a1bf6f2a3", (0, 1))
    groups = {alone: Group(alone, 0, {}, {}, 0)}
    first, second = (Sample(rank, "idle", groups=groups, made=3 + rank) for rank in (0, 1))
    assert not in_step({0: first, 1: second})
