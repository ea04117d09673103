"""Which ranks wait in vain: situations by hand, and what holds of all of them."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.deadlock.wait_graph import Situation, disagree, find_stuck
from labkit.wire.samples import Entry, Group, Sample, Wait

WORLD = "0"


def call(number, name="all_reduce", shape=(4,), kind="Float"):
    return Entry(number, name, (shape,), (kind,), False)


def group(ranks, *entries, posted=None, barriers=0, name=WORLD):
    last = max((e.number for e in entries), default=0)
    key = (name, tuple(ranks))
    return Group(key, last, {e.number: e for e in entries}, posted or {}, barriers)


def waits(rank, kind, *groups, number=1, among=None, **named):
    """Make a rank that stands still and waits: in the first of ``groups``, or any ``among``."""
    chosen = among or groups[:1]
    wait = Wait(kind, tuple((g.key, number) for g in chosen), number=number, **named)
    return Sample(rank, "waiting", still=True, wait=wait, groups={g.key: g for g in groups})


def in_call(rank, size, entry, **named):
    """Make a rank that waits in a collective of all ranks."""
    return waits(rank, "collective", group(range(size), entry), number=entry.number, **named)


def computes(rank, *groups, still=False):
    return Sample(rank, "computing", still=still, groups={g.key: g for g in groups})


def ended(rank, *groups, **named):
    return Sample(rank, "idle", still=True, groups={g.key: g for g in groups}, **named)


def stuck(size, *samples, gone=(), dead=()):
    """Return the stuck ranks; those that are idle are gone."""
    idle = {s.rank for s in samples if s.state == "idle"}
    by_rank = {s.rank: s for s in samples}
    return find_stuck(Situation(size, by_rank, frozenset(idle | {*gone}), frozenset(dead)))


# -- collectives --------------------------------------------------------------------------------


def test_all_wait_for_one_that_skipped_the_call():
    assert stuck(3, ended(0), in_call(1, 3, call(1)), in_call(2, 3, call(1))) == {1, 2}


def test_a_loop_that_ended_early_on_one_rank():
    short = ended(0, group(range(3), call(1), call(2)))
    assert stuck(3, short, in_call(1, 3, call(3)), in_call(2, 3, call(3))) == {1, 2}


def test_a_slow_rank_never_makes_the_others_stuck():
    assert stuck(3, computes(0), in_call(1, 3, call(1)), in_call(2, 3, call(1))) == set()


def test_a_rank_that_sleeps_is_as_good_as_one_that_computes():
    assert stuck(2, computes(0, still=True), in_call(1, 2, call(1))) == set()


def test_a_rank_that_did_not_answer_can_still_come():
    assert stuck(3, in_call(1, 3, call(1)), in_call(2, 3, call(1))) == set()


def test_a_wait_that_is_not_still_is_no_wait():
    moving = dataclasses.replace(in_call(1, 2, call(1)), still=False)
    assert stuck(2, ended(0), moving) == set()
    assert stuck(2, ended(0), dataclasses.replace(moving, still=True)) == {1}


def test_one_missing_rank_is_enough_though_another_may_come():
    assert stuck(3, ended(0), computes(1), in_call(2, 3, call(1))) == {2}


def test_a_dead_rank_cannot_come():
    assert stuck(2, in_call(1, 2, call(1)), gone={0}, dead={0}) == {1}


@pytest.mark.parametrize(("other", "expected"), [(computes, set()), (ended, {0})])
def test_a_subgroup_asks_only_its_members(other, expected):
    pair = group((0, 2), call(1), name="1")
    samples = waits(0, "collective", pair), ended(1), other(2)
    assert stuck(3, *samples) == expected


def test_groups_of_one_name_and_other_members_are_different_groups():
    mine, other = group((0, 1), call(1), name="1"), group((1, 2), call(1), name="1")
    assert stuck(3, waits(0, "collective", mine), ended(1, other), computes(2)) == {0}


def test_two_groups_in_different_order():
    a1, b0 = group((0, 1), call(1), name="1"), group((0, 1), call(1), name="2")
    assert stuck(2, waits(0, "collective", a1), waits(1, "collective", b0)) == {0, 1}


# -- chains and cycles --------------------------------------------------------------------------


def chain(size):
    """Let each rank wait to receive from the next; the last one is left out."""
    return [waits(r, "recv", group(range(size)), peer=r + 1) for r in range(size - 1)]


def test_a_chain_ends_at_a_rank_that_is_gone():
    assert stuck(4, *chain(4), ended(3)) == {0, 1, 2}


@pytest.mark.parametrize("last", [[computes(3)], []], ids=["computes", "unknown"])
def test_a_chain_is_live_as_long_as_its_end_is(last):
    assert stuck(4, *chain(4), *last) == set()


@pytest.mark.parametrize("kind", ["send", "recv"])
def test_a_ring_waits_for_itself(kind):
    ring = [waits(r, kind, group(range(3)), peer=(r + 1) % 3) for r in range(3)]
    assert stuck(3, *ring) == {0, 1, 2}


def test_a_cycle_takes_with_it_who_waits_for_it():
    world = group(range(4))
    first, second = waits(0, "send", world, peer=1), waits(1, "send", world, peer=0)
    assert stuck(4, first, second, waits(2, "recv", world, peer=0), computes(3)) == {0, 1, 2}


def test_a_collective_and_a_message_wait_for_each_other():
    assert stuck(2, in_call(0, 2, call(1)), waits(1, "recv", group(range(2)), peer=0)) == {0, 1}


# -- collectives with a root --------------------------------------------------------------------


#: Rank 0 waits. The other columns: root, has rank 1 come, is it gone, the same of rank 2, stuck?
ROOTED = [
    ("broadcast", 1, "gone", "came", True),
    ("broadcast", 1, "live", "gone", False),
    ("broadcast", 1, "came", "live", False),
    ("broadcast", 1, "came", "gone", True),
    ("broadcast", 0, "gone", "live", False),
    ("broadcast", 0, "gone", "came", True),
    ("broadcast", None, "gone", "live", False),
    ("broadcast", None, "gone", "gone", True),
    ("scatter", 1, "gone", "live", True),
    ("scatter", 1, "live", "gone", False),
    ("scatter", 0, "gone", "live", True),
    ("scatter", None, "gone", "live", False),
    ("gather", 1, "gone", "live", True),
    ("gather", 1, "live", "gone", False),
    ("gather", 0, "gone", "live", True),
    ("gather", 0, "came", "live", False),
    ("gather", None, "gone", "live", False),
    ("reduce", 0, "gone", "live", True),
    ("reduce", 0, "came", "live", False),
    ("reduce", 1, "gone", "live", False),
    ("reduce", 1, "gone", "came", True),
    ("reduce", None, "gone", "live", False),
]


@pytest.mark.parametrize(("name", "root", "first", "second", "expected"), ROOTED)
def test_a_collective_with_a_root(name, root, first, second, expected):
    make = {
        "gone": ended,
        "live": computes,
        "came": lambda rank: in_call(rank, 3, call(1, name), root=root),
    }
    samples = in_call(0, 3, call(1, name), root=root), make[first](1), make[second](2)
    assert (0 in stuck(3, *samples)) is expected


def test_the_source_of_a_broadcast_has_come_and_still_runs():
    root = computes(1, group(range(3), call(1, "broadcast")))
    assert stuck(3, in_call(0, 3, call(1, "broadcast"), root=1), root, ended(2)) == set()


# -- ranks that disagree ------------------------------------------------------------------------


DIFFERENT = {
    "name": (call(1), call(1, "barrier")),
    "shape": (call(1), call(1, shape=(5,))),
    "type": (call(1), call(1, kind="Double")),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_different_calls_at_one_number_are_a_conflict_though_a_third_rank_is_live(pair):
    one, other = (in_call(r, 3, e) for r, e in enumerate(pair))
    assert stuck(3, one, other, computes(2)) == {0, 1}


@pytest.mark.parametrize(("position", "expected"), [(2, set()), (1, {0})])
def test_only_a_rank_that_stands_at_the_number_is_in_conflict(position, expected):
    world = group(range(3), call(1, "barrier"), call(2))
    other = waits(1, "collective", world, number=position)
    assert stuck(3, in_call(0, 3, call(1)), other, computes(2)) & {0} == expected


def test_shapes_with_equal_numbers_of_elements_agree():
    one, other = in_call(0, 3, call(1, shape=(2, 3))), in_call(1, 3, call(1, shape=(6,)))
    assert stuck(3, one, other, computes(2)) == set()


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (call(1, "scatter"), call(1, "scatter", (5,)), False),
        (call(1, "all_to_all"), call(1, "all_to_all", (9,), "Double"), False),
        (call(1, "gather"), call(1, "gather", (5,)), True),
        (call(1, "scatter"), call(1, "gather"), True),
        (call(1), None, False),
        (None, call(1), False),
    ],
)
def test_disagree(a, b, expected):
    assert disagree(a, b) is expected


def both_came(other_still):
    other = computes(1, group(range(2), call(1)), still=other_still)
    return stuck(2, in_call(0, 2, call(1)), other)


def test_all_have_come_and_all_are_still_so_nothing_will_arrive():
    assert stuck(2, in_call(0, 2, call(1)), in_call(1, 2, call(1))) == {0, 1}
    assert both_came(other_still=True) == {0}


def test_all_have_come_and_one_still_runs_so_data_may_be_on_its_way():
    assert both_came(other_still=False) == set()


def test_a_dead_rank_is_still_whatever_it_said_last():
    last_words = computes(1, group(range(2), call(1)))
    assert stuck(2, in_call(0, 2, call(1)), last_words, gone={1}) == set()
    assert stuck(2, in_call(0, 2, call(1)), last_words, gone={1}, dead={1}) == {0}


# -- messages -----------------------------------------------------------------------------------


def message(kind, posted, *, number=1, peer=1, tag=0, other=ended):
    """Rank 0 waits in one end of a message; rank 1 has posted some."""
    own = waits(0, kind, group(range(2)), number=number, peer=peer, tag=tag)
    return stuck(2, own, other(1, group(range(2), posted=posted)))


#: kind of rank 0's wait, its number and tag, what rank 1 has posted, is rank 0 short of one?
MESSAGES = [
    ("recv", 1, 0, {}, True),
    ("recv", 1, 0, {("send", 0, 0): 1}, False),
    ("recv", 2, 0, {("send", 0, 0): 1}, True),
    ("recv", 2, 0, {("send", 0, 0): 2}, False),
    ("recv", 1, 7, {("send", 0, 0): 1}, True),
    ("recv", 1, 7, {("send", 0, 7): 1}, False),
    ("recv", 1, 0, {("send", 2, 0): 1}, True),
    ("recv", 1, 0, {("recv", 0, 0): 1}, True),
    ("send", 1, 0, {}, True),
    ("send", 1, 0, {("recv", 0, 0): 1}, False),
    ("send", 2, 0, {("recv", 0, 0): 1}, True),
    ("send", 1, 7, {("recv", 0, 0): 1}, True),
    ("send", 1, 0, {("recv_any", -1, 0): 1}, False),
    ("send", 1, 7, {("recv_any", -1, 0): 1}, True),
    ("send", 2, 0, {("recv", 0, 0): 1, ("recv_any", -1, 0): 1}, False),
    ("recv_any", 1, 0, {}, True),
    ("recv_any", 1, 0, {("send", 0, 0): 1}, False),
    ("recv_any", 2, 0, {("send", 0, 0): 1}, True),
    ("recv_any", 1, 7, {("send", 0, 0): 1}, True),
]


@pytest.mark.parametrize(("kind", "number", "tag", "posted", "short"), MESSAGES)
def test_messages_are_counted_by_peer_and_tag(kind, number, tag, posted, short):
    """The other rank has ended its cell; its process runs, so what it posted may arrive."""
    own = waits(0, kind, group(range(3)), number=number, peer=1, tag=tag)
    other = dataclasses.replace(ended(1, group(range(3), posted=posted)), still=False)
    assert (0 in stuck(3, own, other, ended(2))) is short


@pytest.mark.parametrize("kind", ["send", "recv", "recv_any"])
def test_a_live_peer_may_still_post(kind):
    assert message(kind, {}, other=computes) == set()


@pytest.mark.parametrize(("kind", "theirs"), [("send", ("recv", 0, 0)), ("recv", ("send", 0, 0))])
def test_a_message_that_both_posted_and_that_never_arrives(kind, theirs):
    """Its sizes differ, say."""
    assert message(kind, {theirs: 1}) == {0}


def test_recv_any_waits_for_the_last_one_that_may_send():
    own = waits(0, "recv_any", group(range(3)))
    assert stuck(3, own, ended(1), ended(2)) == {0}
    assert stuck(3, own, ended(1), computes(2)) == set()


def test_recv_any_adds_up_what_all_have_sent():
    sent = {("send", 0, 0): 1}
    others = [
        dataclasses.replace(ended(r, group(range(3), posted=sent)), still=False) for r in (1, 2)
    ]
    assert stuck(3, waits(0, "recv_any", group(range(3)), number=2), *others) == set()
    assert stuck(3, waits(0, "recv_any", group(range(3)), number=3), *others) == {0}


def test_recv_any_does_not_count_what_a_receive_by_name_has_taken():
    sender = dataclasses.replace(ended(1, group(range(2), posted={("send", 0, 0): 1})), still=False)
    taken = group(range(2), posted={("recv", 1, 0): 1})
    assert stuck(2, waits(0, "recv_any", taken), sender) == {0}


def test_messages_belong_to_one_group():
    world = group(range(2), posted={("send", 0, 0): 1})
    pair = group(range(2), name="1")
    assert stuck(2, waits(0, "recv", pair, peer=1), ended(1, world, pair)) == {0}


def test_a_send_to_a_rank_that_takes_from_any_waits_for_its_next_receive():
    """Rank 1 took from any: rank 2's message. It waits for rank 2, then for rank 0."""
    server = group(range(3), posted={("recv_any", -1, 0): 1, ("recv", 2, 0): 1})
    client = group(range(3), posted={("send", 1, 0): 1})
    samples = (
        waits(0, "send", group(range(3), posted={("send", 1, 0): 1}), peer=1),
        waits(1, "recv", server, peer=2),
        computes(2, client),
    )
    assert stuck(3, *samples) == set()


def test_a_receive_after_a_receive_from_any_waits_for_the_next_message():
    """Rank 0 took rank 1's message from any. Rank 1 waits for rank 2, then sends again."""
    samples = (
        waits(0, "recv", group(range(3), posted={("recv_any", -1, 0): 1}), peer=1),
        waits(1, "recv", group(range(3), posted={("send", 0, 0): 1}), peer=2),
        computes(2),
    )
    assert stuck(3, *samples) == set()


# -- barriers, groups and the start -------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "barriers", "expected"),
    [(ended, 0, {0}), (ended, 1, {0}), (computes, 0, set()), (computes, 1, set())],
)
def test_monitored_barrier(other, barriers, expected):
    own = waits(0, "monitored_barrier", group(range(2), barriers=1))
    assert stuck(2, own, other(1, group(range(2), barriers=barriers))) == expected


def test_the_second_monitored_barrier_needs_a_second_one():
    own = waits(0, "monitored_barrier", group(range(2), barriers=2), number=2)
    for barriers, expected in ((1, {0}), (2, set())):
        other = dataclasses.replace(ended(1, group(range(2), barriers=barriers)), still=False)
        assert stuck(2, own, other) == expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (ended(1, made=2), {0}),
        (ended(1, made=3), set()),
        (computes(1), set()),
    ],
)
def test_new_group_needs_every_rank_of_the_lab(other, expected):
    own = dataclasses.replace(waits(0, "new_group", number=3), made=3)
    assert stuck(2, own, other) == expected


def test_new_group_is_never_vain_once_all_have_come():
    own = [dataclasses.replace(waits(r, "new_group", number=1), made=1) for r in (0, 1)]
    assert stuck(2, *own) == set()


def joining(rank, size):
    return dataclasses.replace(waits(rank, "init", size=size), joined=False)


def outside(rank):
    return ended(rank, joined=False)


def test_init_waits_for_a_rank_that_never_calls_it():
    assert stuck(2, joining(0, 2), outside(1)) == {0}
    assert stuck(2, joining(0, 2), computes(1)) == set()


def test_init_with_more_ranks_than_there_are():
    assert stuck(2, joining(0, 3), joining(1, 3)) == {0, 1}
    assert stuck(2, joining(0, 3), computes(1)) == {0}


def test_init_is_never_vain_while_all_are_in_it():
    assert stuck(2, joining(0, 2), joining(1, 2)) == set()


def test_init_of_fewer_ranks_than_the_lab_has():
    assert stuck(3, joining(0, 2), computes(1), outside(2)) == set()


def test_a_rank_that_has_joined_already_is_not_missing_from_init():
    assert stuck(2, joining(0, 2), ended(1, joined=True)) == set()


# -- what is not known --------------------------------------------------------------------------


def test_any_of_several_options_may_be_the_one():
    a, b = group((0, 1), call(1), name="1"), group((0, 2), call(1), name="2")
    own = waits(0, "collective", a, b, among=(a, b))
    assert stuck(3, own, ended(1), computes(2)) == set()
    assert stuck(3, own, ended(1), ended(2)) == {0}


def test_a_wait_without_an_option_proves_nothing():
    """Its group is not among those that the rank has told of."""
    lost = Sample(0, "waiting", still=True, wait=Wait("recv", (), peer=1))
    assert stuck(2, lost, computes(1)) == set()


def test_what_a_rank_without_an_answer_has_provided_is_not_known():
    """It has ended its cell, and may have sent before."""
    assert stuck(2, waits(0, "recv", group(range(2)), peer=1), gone={1}) == set()


# -- of all situations --------------------------------------------------------------------------


SIZE = 4
NAMES = ("all_reduce", "barrier", "broadcast", "reduce", "gather", "scatter")
KEYS = ((WORLD, (0, 1, 2, 3)), ("1", (0, 1)), ("2", (1, 2, 3)))
KINDS = ("collective", "send", "recv", "recv_any", "monitored_barrier", "new_group", "init")

always = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
ranks = st.integers(0, SIZE - 1)
few = st.integers(0, 2)
calls = st.builds(call, st.just(0), st.sampled_from(NAMES), st.sampled_from([(4,), (5,)]))
posts = st.dictionaries(
    st.one_of(
        st.tuples(st.sampled_from(["send", "recv"]), ranks, few),
        st.tuples(st.just("recv_any"), st.just(-1), few),
    ),
    st.integers(1, 3),
    max_size=3,
)


@st.composite
def samples(draw, rank):
    groups = {}
    for name, members in KEYS:
        if rank in members:
            entries = draw(st.lists(calls, max_size=2))
            numbered = [dataclasses.replace(e, number=n) for n, e in enumerate(entries, 1)]
            made = group(members, *numbered, posted=draw(posts), barriers=draw(few), name=name)
            groups[made.key] = made
    wait = None
    if draw(st.integers(0, 3)):
        kind = draw(st.sampled_from(KINDS))
        options = st.tuples(st.sampled_from(sorted(groups)), st.integers(1, 2))
        several = 2 if kind == "collective" else 1
        wait = Wait(
            kind,
            tuple(draw(st.lists(options, min_size=1, max_size=several))),
            peer=draw(ranks.filter(lambda r: r != rank)),
            tag=draw(few),
            root=draw(st.none() | ranks),
            size=draw(st.integers(2, SIZE + 1)),
            number=draw(few),
        )
    still = draw(st.booleans()) or draw(st.booleans())
    return Sample(rank, "waiting", still, wait, groups=groups, made=draw(few))


@st.composite
def situations(draw):
    known = {r: draw(samples(r)) for r in range(SIZE) if draw(st.integers(0, 4))}
    gone = frozenset(r for r in range(SIZE) if r not in known or not known[r].wait)
    gone &= draw(st.frozensets(ranks))
    return Situation(SIZE, known, gone, gone & draw(st.frozensets(ranks)))


@always
@given(situations())
def test_only_ranks_that_wait_and_stand_still_are_stuck(situation):
    waiting = {r for r, s in situation.samples.items() if s.wait and s.still}
    assert find_stuck(situation) <= waiting


@always
@given(situations(), ranks)
def test_a_rank_that_may_come_after_all_makes_nobody_stuck(situation, rank):
    later = dataclasses.replace(
        situation, gone=situation.gone - {rank}, dead=situation.dead - {rank}
    )
    assert find_stuck(later) <= find_stuck(situation)


@always
@given(situations(), ranks)
def test_a_rank_that_nothing_is_known_of_makes_nobody_stuck(situation, rank):
    known = {r: s for r, s in situation.samples.items() if r != rank}
    blind = Situation(SIZE, known, situation.gone - {rank}, situation.dead - {rank})
    assert find_stuck(blind) <= find_stuck(situation)


@always
@given(situations(), ranks)
def test_a_rank_that_runs_makes_nobody_stuck(situation, rank):
    known = dict(situation.samples)
    if rank in known:
        known[rank] = dataclasses.replace(known[rank], still=False)
    awake = dataclasses.replace(situation, samples=known, dead=situation.dead - {rank})
    assert find_stuck(awake) <= find_stuck(situation)


@always
@given(situations())
def test_whoever_is_stuck_stays_so_when_the_able_ranks_have_gone(situation):
    stuck_now = find_stuck(situation)
    waiting = {r for r, s in situation.samples.items() if s.wait and s.still}
    alone = dataclasses.replace(situation, gone=frozenset(range(SIZE)) - waiting)
    assert stuck_now <= find_stuck(alone)
