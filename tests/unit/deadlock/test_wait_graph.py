"""Which ranks block forever, proved or suspected: by hand, and what holds of all situations."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.deadlock.needs import Situation, disagree, needs
from labkit.deadlock.wait_graph import OUTSIDER, Verdict, judge
from labkit.wire.samples import Entry, Group, Issuer, Message, Sample, Wait

WORLD = "0"
#: Something that labkit cannot see into.
THREAD = Issuer("a thread of rank {rank} is alive: Thread-1 (tick)")


def call(number, name="all_reduce", shape=(4,), kind="Float", **more):
    return Entry(number, name, (shape,), (kind,), False, **more)


def group(ranks, *entries, posted=None, barriers=0, name=WORLD, **more):
    last = max((e.number for e in entries), default=0)
    key = (name, tuple(ranks))
    return Group(key, last, {e.number: e for e in entries}, posted or {}, barriers, **more)


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


def has(sample, **more):
    """Return the sample with something more, or something else."""
    return dataclasses.replace(sample, **more)


def decide(size, *samples, gone=(), dead=(), **more):
    """Judge these ranks; those that are idle are gone."""
    idle = {s.rank for s in samples if s.state == "idle"}
    by_rank = {s.rank: s for s in samples}
    return judge(Situation(size, by_rank, frozenset(idle | {*gone}), frozenset(dead), **more))


def stuck(size, *samples, **more):
    """Return the ranks that are proved to be stuck."""
    return decide(size, *samples, **more).proved


def suspicion(size, *samples, **more):
    """Return the ranks that are only suspected, and why they are not proved."""
    verdict = decide(size, *samples, **more)
    assert verdict.proved <= verdict.suspected
    return verdict.suspected - verdict.proved, verdict.doubts


NOBODY = (frozenset(), ())


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


@pytest.mark.parametrize("still", [True, False])
def test_data_on_its_way_does_not_stand_for_a_rank_that_has_not_come(still):
    assert stuck(2, ended(0), has(in_call(1, 2, call(1)), still=still)) == {1}


def test_a_rank_whose_cell_has_not_begun_or_whose_reply_is_on_its_way_may_come():
    idle = {0: ended(0), 1: in_call(1, 2, call(1))}
    assert judge(Situation(2, idle)) == Verdict()
    assert judge(Situation(2, idle, frozenset({0}))).proved == {1}


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
    world = group(range(3), call(1, shape=(5,)), call(2))
    other = waits(1, "collective", world, number=position)
    assert stuck(3, in_call(0, 3, call(1)), other, computes(2)) & {0} == expected


@pytest.mark.parametrize(
    ("mine", "theirs", "done", "expected"),
    [
        ("all_reduce", "barrier", False, {0}),
        ("all_reduce", "barrier", True, set()),
        ("all_reduce", "all_reduce", False, set()),
        ("gather", "barrier", False, set()),  # it may need nothing of that rank
    ],
)
def test_another_collective_that_is_under_way_is_in_conflict_too(mine, theirs, done, expected):
    """Rank 1 has begun it and gone on to the next one."""
    theirs = dataclasses.replace(call(1, theirs), done=done)
    other = waits(1, "collective", group(range(3), theirs, call(2)), number=2)
    assert stuck(3, in_call(0, 3, call(1, mine)), other, computes(2)) & {0} == expected


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


@pytest.mark.parametrize(
    "other",
    [
        in_call(1, 2, call(1)),
        computes(1, group(range(2), call(1)), still=True),
        ended(1, group(range(2), call(1))),
        ended(1, group(range(2), call(1), call(2))),
    ],
    ids=["waits", "computes", "ended", "is ahead"],
)
def test_all_have_come_so_it_is_only_slow_though_nothing_moves(other):
    """A link can be slow, or lose data for a while: nobody has to come any more."""
    assert decide(2, in_call(0, 2, call(1)), other) == Verdict()


def test_who_died_after_it_came_is_no_deadlock():
    """Its death ends the cell, and says more than a deadlock could."""
    last_words = computes(1, group(range(2), call(1)))
    assert decide(2, in_call(0, 2, call(1)), last_words, gone={1}, dead={1}) == Verdict()


def test_a_dead_rank_is_still_whatever_it_said_last():
    """Its message may have been taken by a receive from any; or it never arrives."""
    own = waits(0, "recv", group(range(2), posted={("recv_any", -1, 0): 1}), peer=1)
    last_words = has(ended(1, group(range(2), posted={("send", 0, 0): 1})), still=False)
    assert stuck(2, own, last_words) == set()
    assert stuck(2, own, last_words, dead={1}) == {0}


# -- calls that fit, or not, or that nobody can see -----------------------------------------------

UNSEEN = "everybody has come, but labkit cannot see whether the calls fit"


def splits(to, back):
    return call(1, "all_to_all", splits=(to, back))


@pytest.mark.parametrize(
    ("mine", "theirs", "fit"),
    [
        (splits((1, 2), (1, 3)), splits((3, 4), (2, 4)), True),
        (splits((1, 1), (1, 1)), call(1, "all_to_all"), False),
        (call(1, "all_to_all"), call(1, "all_to_all"), True),
        (call(1, "all_to_all"), call(1, "all_to_all", (5,)), False),
        (call(1, "broadcast", root=0), call(1, "broadcast", root=0), True),
        (call(1, "broadcast", root=0), call(1, "broadcast"), False),
        (call(1, "scatter", root=0), call(1, "scatter", (5,), root=0), True),
        (call(1, "barrier"), call(1, "barrier"), True),
    ],
)
def test_all_have_come_and_only_calls_that_fit_are_certain_to_end(mine, theirs, fit):
    expected = NOBODY if fit else ({0, 1}, (UNSEEN,))
    assert suspicion(2, in_call(0, 2, mine), in_call(1, 2, theirs)) == expected


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (splits((1, 2), (1, 3)), splits((3, 4), (1, 4))),
        (splits((1, 2), (1, 3)), splits((2, 4), (2, 4))),
        (splits((1,), (1,)), splits((1, 1), (1, 1))),
    ],
    ids=["takes less", "gives less", "too few"],
)
def test_splits_that_do_not_fit_are_a_conflict_once_both_stand_there(mine, theirs):
    assert stuck(2, in_call(0, 2, mine), in_call(1, 2, theirs)) == {0, 1}
    gone = ended(1, group(range(2), theirs))
    assert suspicion(2, in_call(0, 2, mine), gone) == ({0}, (UNSEEN,))


@pytest.mark.parametrize("moves", [0, 1])
def test_calls_that_nobody_can_see_are_no_suspicion_while_data_is_on_its_way(moves):
    ranks = [in_call(r, 2, call(1, "broadcast")) for r in range(2)]
    ranks[moves] = has(ranks[moves], still=False)
    assert decide(2, *ranks) == Verdict()


def test_a_call_that_the_recorder_has_forgotten_has_met_the_others():
    ahead = has(group(range(2), call(9)), entries={9: call(9)})
    assert decide(2, in_call(0, 2, call(1)), computes(1, ahead)) == Verdict()


def test_a_call_of_its_own_that_is_not_on_record_is_suspected_only():
    own = waits(0, "collective", has(group(range(2)), last=1))
    assert suspicion(2, own, ended(1, group(range(2), call(1)))) == ({0}, (UNSEEN,))
    assert stuck(2, own, ended(1)) == {0}


@pytest.mark.parametrize("name", ["broadcast", "reduce", "gather", "scatter"])
def test_roots_that_differ_are_proved(name):
    """Though each rank may look for another one."""
    ranks = [in_call(r, 2, call(1, name, root=r)) for r in range(2)]
    assert stuck(2, *ranks) == {0, 1}


def test_what_was_issued_is_in_conflict_where_the_device_is_waited_for_too():
    own = waits(0, "device", group(range(3), call(1)))
    other = waits(1, "device", group(range(3), call(1, "barrier")))
    assert stuck(3, own, other, computes(2)) == {0, 1}


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
def test_a_message_that_both_posted_is_on_its_way_however_long(kind, theirs):
    own = waits(0, kind, group(range(2)), peer=1)
    assert decide(2, own, ended(1, group(range(2), posted={theirs: 1}))) == Verdict()


def dropped(call_, rank=1):
    return (
        f"the handle of an {call_} of rank {rank} was dropped, so its message may be lost, and "
        "what comes after it between the two ranks"
    )


@pytest.mark.parametrize(
    ("kind", "theirs", "call_"), [("send", "recv", "irecv"), ("recv", "send", "isend")]
)
def test_a_message_whose_handle_was_dropped_may_be_lost(kind, theirs, call_):
    own = waits(0, kind, group(range(3)), peer=1)
    lost = frozenset({(theirs, 0, 0, 1)})
    other = ended(1, group(range(3), posted={(theirs, 0, 0): 1}, dropped=lost))
    assert suspicion(3, own, other, ended(2)) == ({0}, (dropped(call_),))
    assert decide(3, own, has(other, still=False), ended(2)) == Verdict()  # it is on its way
    third = group(range(3), posted={(theirs, 0, 0): 1}, dropped=frozenset({(theirs, 2, 0, 1)}))
    assert decide(3, own, ended(1, third), ended(2)) == Verdict()  # between two other ranks


@pytest.mark.parametrize("tag", [0, 7])
@pytest.mark.parametrize(("end", "call_"), [("send", "isend"), ("recv", "irecv")])
def test_a_message_whose_handle_was_dropped_is_in_the_way_of_others(tag, end, call_):
    """Whichever of the two ranks dropped it, whatever its tag."""
    sent = {("send", 0, 0): 2}
    other = ended(1, group(range(2), posted=sent, dropped=frozenset({(end, 0, tag, 1)})))
    own = waits(0, "recv", group(range(2)), peer=1, number=2)
    assert suspicion(2, own, other) == ({0}, (dropped(call_),))
    here = group(range(2), dropped=frozenset({(end, 1, tag, 1)}))
    own = waits(0, "recv", here, peer=1, number=2)
    assert suspicion(2, own, ended(1, group(range(2), posted=sent))) == ({0}, (dropped(call_, 0),))


@pytest.mark.parametrize("peer", [1, -1])
def test_a_message_whose_handle_was_dropped_is_in_the_way_of_a_collective(peer):
    lost = frozenset({("recv" if peer >= 0 else "recv_any", peer, 0, 1)})
    fine = [in_call(r, 3, call(1)) for r in range(3)]
    own = waits(0, "collective", group(range(3), call(1), dropped=lost))
    assert suspicion(3, own, *fine[1:]) == ({0, 1, 2}, (dropped("irecv", 0),))
    assert decide(3, has(own, still=False), *fine[1:]) == Verdict()  # it is on its way
    assert decide(3, *fine) == Verdict()


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
    [(ended, 0, {0}), (ended, 1, set()), (computes, 0, set()), (computes, 1, set())],
)
def test_monitored_barrier(other, barriers, expected):
    own = waits(0, "monitored_barrier", group(range(2), barriers=1))
    assert stuck(2, own, other(1, group(range(2), barriers=barriers))) == expected


def test_the_second_monitored_barrier_needs_a_second_one():
    own = waits(0, "monitored_barrier", group(range(2), barriers=2), number=2)
    for barriers, expected in ((1, {0}), (2, set())):
        other = dataclasses.replace(ended(1, group(range(2), barriers=barriers)), still=False)
        assert stuck(2, own, other) == expected


def making(rank, ranks=None, number=3, size=3, made=None):
    """Make a rank that waits in ``new_group``: for all ranks, or where torch names the group."""
    key = None if ranks is None else ("5", tuple(ranks))
    own = waits(rank, "new_group", group(range(size)), number=number, making=key)
    return has(own, made=number if made is None else made)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (ended(1, made=2), {0}),
        (ended(1, made=3), set()),
        (computes(1), set()),
    ],
)
def test_new_group_needs_every_rank_of_the_lab(other, expected):
    assert stuck(2, making(0, size=2), other) == expected


def test_new_group_is_never_vain_once_all_have_come():
    assert decide(2, making(0, size=2), making(1, size=2)) == Verdict()


def test_new_group_of_members_that_have_come_does_not_need_the_others():
    """Torch makes the group of its members alone; the others have counted it."""
    assert decide(3, making(0, (0, 1)), making(1, (0, 1)), ended(2)) == Verdict()
    assert stuck(3, making(0, (0, 1)), ended(1), computes(2)) == {0}


def test_a_member_that_has_made_the_group_and_has_gone_on_is_not_missing():
    made = ended(1, group((0, 1), name="5"), made=3)
    assert decide(3, making(0, (0, 1)), made, ended(2)) == Verdict()


def test_a_member_that_has_made_as_many_groups():
    """Labkit cannot tell whether it was this one."""
    found = suspicion(3, making(0, (0, 1)), ended(1, made=3), ended(2, made=2))
    assert found == ({0}, ("rank 1 has made as many groups, perhaps this one among them",))


def test_ranks_that_make_different_groups_under_one_number():
    """Rank 1 has counted on, and will not make that of rank 0 any more."""
    assert stuck(3, making(0, (0, 1)), making(1, (1, 2)), ended(2, made=2)) == {0, 1}
    alone = ended(1, group(range(3)), group((1,), name="5"), made=3)
    assert stuck(3, making(0, (0, 1)), alone, computes(2)) == {0}


def in_pair(rank, members, **named):
    """Make a rank of four that waits in a collective of a group of its own making."""
    own = group(members, call(1), name="5")
    return waits(rank, "collective", own, group(range(4)), **named)


def test_groups_whose_connections_may_be_crossed():
    """Each rank makes only its own group, under one name: everybody has come, and all are
    blocked."""
    pairs = [in_pair(0, (0, 1)), in_pair(1, (0, 1)), in_pair(2, (2, 3)), in_pair(3, (2, 3))]
    assert stuck(4, *pairs) == {0, 1, 2, 3}
    assert decide(4, *[has(rank, still=False) for rank in pairs]) == Verdict()
    late = making(2, (2, 3), size=4)
    assert stuck(4, in_pair(0, (0, 1)), in_pair(1, (0, 1)), late, in_pair(3, (2, 3))) == {
        0,
        1,
        2,
        3,
    }


def test_a_member_of_a_crossed_group_may_still_come():
    """By chance the connections may be right: who computes is waited for."""
    late = computes(1, group((0, 1), name="5"), group(range(4)))
    others = in_pair(2, (2, 3)), computes(3, group((2, 3), name="5"), group(range(4)))
    assert decide(4, in_pair(0, (0, 1)), late, *others) == Verdict()


def test_groups_of_one_name_in_two_worlds_are_not_crossed():
    worlds = (group((0, 1)), group((2, 3)))
    pairs = [
        waits(
            r,
            "collective",
            group((2 * (r // 2), 2 * (r // 2) + 1), call(1), name="5"),
            worlds[r // 2],
        )
        for r in range(4)
    ]
    assert decide(4, *pairs) == Verdict()


def test_new_group_that_meets_its_members_alone_has_no_number():
    """use_local_synchronization=True: no count tells who has come."""
    assert stuck(3, making(0, (0, 1), number=-1, made=9), ended(1, made=9), computes(2)) == {0}
    both = making(0, (0, 1), number=-1), making(1, (0, 1), number=-1)
    assert decide(3, *both, ended(2)) == Verdict()


# -- the start ------------------------------------------------------------------------------------

OTHERS_JOIN = "a process that is no rank of this lab may join the group"
ELSEWHERE = "the ranks name different addresses, and other processes may come there"
SAME_NUMBER = "ranks gave the same number, and other processes may have the ones that lack"


def joining(rank, size, **more):
    return has(waits(rank, "init", size=size, **more), joined=False)


def outside(rank):
    return ended(rank, joined=False)


def test_init_waits_for_a_rank_that_never_calls_it():
    assert stuck(2, joining(0, 2), outside(1)) == {0}
    assert decide(2, joining(0, 2), computes(1)) == Verdict()


def test_init_with_more_ranks_than_there_are_may_wait_for_another_process():
    assert suspicion(2, joining(0, 3), joining(1, 3)) == ({0, 1}, (OTHERS_JOIN,))
    assert suspicion(2, joining(0, 3), computes(1)) == ({0}, (OTHERS_JOIN,))


def test_init_that_waits_for_a_rank_that_was_not_asked_may_wait_for_another_process():
    found = suspicion(2, joining(0, 2), outside(1), not_asked=frozenset({1}))
    assert found == ({0}, (OTHERS_JOIN,))


def test_init_is_never_vain_while_all_are_in_it():
    assert decide(2, joining(0, 2), joining(1, 2)) == Verdict()
    assert decide(2, joining(0, -1), joining(1, -1)) == Verdict()  # world_size was not given


def test_init_of_fewer_ranks_than_the_lab_has():
    assert decide(3, joining(0, 2), computes(1), outside(2)) == Verdict()
    found = suspicion(3, joining(0, 2), outside(1), outside(2))
    assert found == ({0}, (OTHERS_JOIN,))


def test_a_rank_that_has_joined_already_may_be_in_an_older_group():
    older = "other ranks are in a group already, perhaps an older one"
    joined = ended(1, joined=True)
    assert suspicion(2, joining(0, 2), joined) == ({0}, (older,))
    assert decide(2, joining(0, 2), has(joined, still=False)) == Verdict()


def test_init_at_different_addresses():
    here, there = (f"tcp://127.0.0.1:{port}" for port in (1111, 2222))
    apart = joining(0, 2, at=here), joining(1, 2, at=there)
    assert suspicion(2, *apart) == ({0, 1}, (ELSEWHERE,))
    together = joining(0, 2, at=here), joining(1, 2, at=here)
    assert decide(2, *together) == Verdict()
    unknown = joining(0, 2, at=here), joining(1, 2)  # by a store of the user's
    assert decide(2, *unknown) == Verdict()


def test_init_with_one_number_on_two_ranks():
    assert suspicion(2, joining(0, 2, me=0), joining(1, 2, me=0)) == ({0, 1}, (SAME_NUMBER,))
    assert decide(2, joining(0, 2, me=0), joining(1, 2, me=1)) == Verdict()


# -- stores, and what nobody knows ----------------------------------------------------------------

KEY = "any process that reaches the store may set the key"


def asks_store(rank):
    return waits(rank, "store", at="'a'", doubt=KEY)


def test_a_key_that_no_rank_can_set_any_more_is_suspected_only():
    assert suspicion(2, asks_store(0), ended(1)) == ({0}, (KEY,))
    assert suspicion(2, asks_store(0), asks_store(1)) == ({0, 1}, (KEY,))


@pytest.mark.parametrize("other", [[computes(1)], []], ids=["computes", "unknown"])
def test_a_key_that_some_rank_can_still_set_is_no_suspicion(other):
    assert decide(2, asks_store(0), *other) == Verdict()


def test_a_wait_that_nobody_knows_is_suspected_once_all_others_are_gone():
    own = waits(0, "unknown", doubt="labkit cannot see what rank {rank} waits for")
    assert suspicion(2, own, ended(1)) == ({0}, ("labkit cannot see what rank 0 waits for",))
    assert decide(2, own, computes(1)) == Verdict()


def test_a_wait_with_a_doubt_of_its_own_is_never_proved():
    """Its collective was found by counting, say: the recorder is off."""
    own = in_call(0, 2, call(1), doubt="torch's flight recorder is off")
    assert suspicion(2, own, ended(1)) == ({0}, ("torch's flight recorder is off",))


# -- waits for a device ---------------------------------------------------------------------------


def on_device(rank, *groups, options=(), messages=()):
    wait = Wait("device", tuple(options), messages=tuple(messages))
    return Sample(rank, "waiting", True, wait, groups={g.key: g for g in groups})


def test_a_device_needs_all_that_was_given_to_it():
    """A collective of several options needs any one; a device needs every one."""
    a, b = group((0, 1), call(1), name="1"), group((0, 2), call(1), name="2")
    options = (a.key, 1), (b.key, 1)
    assert stuck(3, on_device(0, a, b, options=options), ended(1), computes(2)) == {0}
    met = computes(1, group((0, 1), call(1), name="1")), computes(2)
    assert decide(3, on_device(0, a, b, options=options), *met) == Verdict()


@pytest.mark.parametrize(
    ("posted", "last", "expected"),
    [
        ({}, computes(1), set()),
        ({}, ended(1), {0}),
        ({("recv", 0, 0): 1}, None, set()),
        ({("recv", 0, 0): 2}, None, set()),
    ],
)
def test_a_device_waits_for_messages_too(posted, last, expected):
    world = group(range(2), posted={("send", 1, 0): 1})
    end = Message("send", world.key, 1, 1, 0)
    other = last or ended(1, group(range(2), posted=posted))
    assert stuck(2, on_device(0, world, messages=[end]), other) == expected


def in_part(sample):
    """Let a rank wait for its device within a cell."""
    return has(sample, wait=dataclasses.replace(sample.wait, partial=True))


def test_within_a_cell_a_device_may_need_any_part_of_what_was_given_to_it():
    """A value that rank 2 brings late may be all that the rank looks at, and then it may do what
    rank 1 waits for."""
    a, b = group((0, 1), call(1), name="1"), group((0, 2), call(1), name="2")
    own = on_device(0, a, b, options=((a.key, 1), (b.key, 1)))
    assert stuck(3, own, ended(1), computes(2)) == {0}
    assert decide(3, in_part(own), ended(1), computes(2)) == Verdict()
    assert stuck(3, in_part(own), ended(1), ended(2)) == {0}
    send = Message("send", a.key, 1, 1, 0)
    own = on_device(0, a, b, options=((b.key, 1),), messages=[send])
    assert decide(3, in_part(own), ended(1), computes(2)) == Verdict()


def test_a_device_does_the_collectives_of_a_group_one_after_the_other():
    pair, both = group((0, 1), call(1), call(2, "barrier")), group((0, 1), call(1, "barrier"))
    own = in_part(on_device(0, pair, options=((pair.key, 2), (pair.key, 1))))
    assert stuck(2, own, waits(1, "collective", both)) == {0, 1}
    assert decide(2, own, computes(1, group((0, 1), call(1)))) == Verdict()


def test_a_device_that_waits_for_nothing_goes_on():
    assert decide(2, on_device(0), ended(1)) == Verdict()


# -- what else may issue calls --------------------------------------------------------------------


def held(wait, **more):
    return Issuer("a thread of rank {rank} is alive: Thread-1 (tick)", wait, **more)


TICKS = "a thread of rank {} is alive: Thread-1 (tick)"


def test_a_thread_may_make_the_call_that_the_others_wait_for():
    ticking = ended(0, issuers=(THREAD,))
    assert suspicion(2, ticking, in_call(1, 2, call(1))) == ({1}, (TICKS.format(0),))


def test_a_thread_whose_wait_has_a_limit_goes_on_for_certain():
    brief = ended(0, issuers=(held(None, ends=True),))
    assert decide(2, brief, in_call(1, 2, call(1))) == Verdict()


def test_a_thread_of_a_rank_that_nobody_waits_for_does_not_matter():
    pair = group((1, 2), call(1), name="1")
    elsewhere = ended(0, issuers=(THREAD,)), ended(1)
    assert decide(3, *elsewhere, waits(2, "collective", pair)) == Verdict(
        frozenset({2}), frozenset({2})
    )


def test_a_thread_of_the_very_rank_does_not_free_its_main_thread():
    own = has(in_call(1, 2, call(1)), issuers=(THREAD,))
    assert decide(2, ended(0), own).proved == {1}


def test_a_thread_that_waits_in_vain_itself_cannot_come():
    world = group(range(2), call(1))
    receives = held(Wait("recv", ((world.key, 1),), peer=1))
    assert stuck(2, ended(0, world, issuers=(receives,)), in_call(1, 2, call(2))) == {1}
    # but it can as soon as rank 1 has sent
    sent = in_call(1, 2, call(2))
    sent = has(sent, groups={world.key: group(range(2), call(2), posted={("send", 0, 0): 1})})
    assert decide(2, ended(0, world, issuers=(receives,)), sent) == Verdict()


def test_a_doubt_travels_along_the_chain_and_is_told_once():
    first, second = chain(3)
    found = suspicion(3, first, second, ended(2, issuers=(THREAD,)))
    assert found == ({0, 1}, (TICKS.format(2),))


def parked(rank, *issuers):
    """Make a rank whose main thread waits for another one, as in ``Future.result()``."""
    return has(waits(rank, "thread"), issuers=issuers)


def test_a_parked_main_thread_goes_on_if_a_thread_can():
    own = parked(0, held(Wait("recv", ((group(range(2)).key, 1),), peer=1)))
    own = has(own, groups={group(range(2)).key: group(range(2))})
    assert decide(2, own, computes(1)) == Verdict()
    assert stuck(2, own, ended(1)) == {0}


def test_a_main_thread_that_waits_for_a_thread_that_nobody_can_see_into():
    assert suspicion(2, parked(0, THREAD), ended(1)) == ({0}, (TICKS.format(0),))


def test_a_parked_thread_that_nobody_in_its_process_can_wake():
    assert stuck(1, parked(0, held(Wait("thread")))) == {0}


def test_a_parked_thread_can_be_woken_by_another():
    own = parked(0, held(Wait("thread")), THREAD)
    assert suspicion(1, own) == ({0}, (TICKS.format(0),))


TASK = Issuer("a task of rank {rank}'s event loop is pending: Task-1", when_idle=True)


def test_a_task_of_the_event_loop_runs_only_while_the_main_thread_is_idle():
    waiting = in_call(1, 2, call(1))
    assert suspicion(2, ended(0, issuers=(TASK,)), waiting)[0] == {1}
    blocked = has(waits(0, "recv", group(range(2)), peer=1), issuers=(TASK,))
    assert stuck(2, blocked, waiting) == {0, 1}


def test_a_task_runs_while_the_cell_awaits_something():
    awaiting = has(waits(0, "thread", doubt="the cell of rank {rank} awaits something"))
    awaiting = has(awaiting, issuers=(TASK,))
    found, doubts = suspicion(2, awaiting, in_call(1, 2, call(1)))
    assert found == {0, 1}
    assert "the cell of rank 0 awaits something" in doubts


OUTSIDE = "a thread of this notebook is alive, which may send something to a rank: x"


def test_what_is_outside_may_give_work_to_a_rank_that_has_ended():
    found = suspicion(2, ended(0), in_call(1, 2, call(1)), outside=(OUTSIDE,))
    assert found == ({1}, (OUTSIDE,))


def test_what_is_outside_cannot_reach_ranks_that_are_blocked_or_dead():
    ring = [waits(r, "recv", group(range(2)), peer=1 - r) for r in range(2)]
    assert stuck(2, *ring, outside=(OUTSIDE,)) == {0, 1}
    assert stuck(2, in_call(1, 2, call(1)), gone={0}, dead={0}, outside=(OUTSIDE,)) == {1}


def test_nothing_is_proved_with_a_blind_eye():
    """Some rank's torch hides what a proof rests on, say, the time limits of groups."""
    blind = ended(0, doubts=("torch 9 hides the limits",))
    found = suspicion(3, blind, in_call(1, 3, call(1)), in_call(2, 3, call(1)))
    assert found == ({1, 2}, ("torch 9 hides the limits",))


# -- members that are no rank of the lab ----------------------------------------------------------


@pytest.mark.parametrize("outsider", [-3, 2, 7], ids=["renumbered", "one more", "far"])
def test_a_member_that_is_no_rank_of_the_lab_may_always_come(outsider):
    own = waits(0, "collective", group((0, 1, outsider), call(1)))
    other = computes(1, group((0, 1, outsider), call(1)))
    assert suspicion(2, own, other) == ({0}, (OUTSIDER,))
    assert stuck(2, own, ended(1)) == {0}  # who lacks rank 1 is stuck in any case


def test_a_member_without_a_number_may_be_a_rank_that_has_not_answered():
    own = waits(0, "collective", group((0, 1, -3), call(1)))
    came = computes(1, group((0, 1, -3), call(1)))
    assert decide(3, own, came) == Verdict()


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


def test_verdicts_have_a_doubt_only_where_something_is_not_proved():
    assert decide(2, ended(0), in_call(1, 2, call(1))) == Verdict(frozenset({1}), frozenset({1}))


def test_some_ranks_can_be_proved_while_others_are_suspected():
    pair, other = group((0, 1), call(1), name="1"), group((2, 3), call(1), name="2")
    verdict = decide(
        4,
        ended(0, issuers=(THREAD,)),
        waits(1, "collective", pair),
        ended(2),
        waits(3, "collective", other),
    )
    assert verdict == Verdict(frozenset({3}), frozenset({1, 3}), (TICKS.format(0),))


def test_a_kind_that_needs_nothing_from_nobody():
    alone = group((0,), call(1), name="1")
    own = waits(0, "collective", alone)
    assert needs(Situation(2, {0: own}), 0, own.wait)[0].missing == frozenset()
    assert decide(2, own, ended(1)) == Verdict()


# -- of all situations --------------------------------------------------------------------------


SIZE = 4
NAMES = ("all_reduce", "barrier", "broadcast", "reduce", "gather", "scatter", "all_to_all")
KEYS = ((WORLD, (0, 1, 2, 3)), ("1", (0, 1)), ("2", (1, 2, 3)), ("3", (0, 2, -6)))
SEVERAL = ("collective", "device")
PLAIN_WAITS = ("send", "recv", "recv_any", "monitored_barrier", "new_group", "init")
ELSE = ("thread", "store", "unknown")

always = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
ranks = st.integers(0, SIZE - 1)
few = st.integers(0, 2)
calls = st.builds(
    call, st.just(0), st.sampled_from(NAMES), st.sampled_from([(4,), (5,)]), root=st.none() | ranks
)
posts = st.dictionaries(
    st.one_of(
        st.tuples(st.sampled_from(["send", "recv"]), ranks, few),
        st.tuples(st.just("recv_any"), st.just(-1), few),
    ),
    st.integers(1, 3),
    max_size=3,
)


@st.composite
def some_waits(draw, rank, keys):
    kind = draw(st.sampled_from(SEVERAL + PLAIN_WAITS + ELSE))
    options = st.tuples(st.sampled_from(keys), st.integers(1, 2))
    chosen = draw(st.lists(options, min_size=1, max_size=2 if kind in SEVERAL else 1))
    doubt = st.sampled_from(["", "", "", f"a doubt about {kind} of rank {{rank}}"])
    return Wait(
        kind,
        tuple(chosen),
        peer=draw(ranks.filter(lambda r: r != rank)),
        tag=draw(few),
        root=draw(st.none() | ranks),
        size=draw(st.integers(2, SIZE + 1)),
        number=draw(few),
        doubt=f"a doubt about {kind} of rank {{rank}}" if kind in ELSE[1:] else draw(doubt),
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
    own = some_waits(rank, sorted(groups))
    state = draw(st.sampled_from(["waiting", "waiting", "waiting", "idle", "computing"]))
    issuers = ()
    if state != "computing" and draw(st.booleans()):
        another = st.builds(Issuer, st.just(THREAD.name), st.none() | own, st.booleans())
        issuers = tuple(draw(st.lists(another, max_size=2)))
    return Sample(
        rank,
        state,
        draw(st.booleans()) or draw(st.booleans()),
        draw(own) if state == "waiting" else None,
        groups=groups,
        made=draw(few),
        joined=draw(st.booleans()),
        issuers=issuers,
        doubts=draw(st.sampled_from([(), (), (), ("a feature is off",)])),
    )


@st.composite
def situations(draw):
    known = {r: draw(samples(r)) for r in range(SIZE) if draw(st.integers(0, 5))}
    ended_ = draw(st.frozensets(ranks))
    gone = frozenset(r for r in range(SIZE) if r not in known or known[r].state == "idle") & ended_
    dead = gone & draw(st.frozensets(ranks))
    outside_ = draw(st.sampled_from([(), (), (OUTSIDE,)]))
    return Situation(SIZE, known, gone, dead, gone & draw(st.frozensets(ranks)), outside_)


def without(situation, rank):
    """Return what is known if a rank has given no answer."""
    known = {r: s for r, s in situation.samples.items() if r != rank}
    return dataclasses.replace(
        situation, samples=known, gone=situation.gone - {rank}, dead=situation.dead - {rank}
    )


def changed(situation, rank, **more):
    """Return the situation with another answer of one rank."""
    known = dict(situation.samples)
    if rank in known:
        known[rank] = has(known[rank], **more)
    return dataclasses.replace(situation, samples=known)


@always
@given(situations())
def test_what_is_proved_is_suspected_and_only_ranks_that_wait_are(situation):
    verdict = judge(situation)
    waiting = {r for r, s in situation.samples.items() if s.wait}
    assert verdict.proved <= verdict.suspected <= waiting


@always
@given(situations())
def test_there_is_a_doubt_wherever_something_is_not_proved(situation):
    """The message of a suspicion says why it is none that is proved."""
    verdict = judge(situation)
    assert verdict.proved == verdict.suspected or verdict.doubts
    assert all(doubt and "{" not in doubt for doubt in verdict.doubts)


@always
@given(situations())
def test_nothing_at_all_is_proved_with_a_blind_eye(situation):
    if any(s.doubts for s in situation.samples.values()):
        assert judge(situation).proved == set()


@always
@given(situations(), ranks)
def test_something_that_nobody_can_see_into_proves_nothing_more(situation, rank):
    if rank not in situation.samples:
        return
    more = (*situation.samples[rank].issuers, THREAD)
    later = changed(situation, rank, issuers=more)
    assert judge(later).proved <= judge(situation).proved
    assert judge(later).suspected == judge(situation).suspected


@always
@given(situations(), ranks)
def test_a_rank_that_computes_is_never_stuck_and_makes_nobody_stuck(situation, rank):
    later = changed(situation, rank, state="computing", wait=None)
    later = dataclasses.replace(later, gone=later.gone - {rank}, dead=later.dead - {rank})
    verdict = judge(later)
    assert rank not in verdict.suspected
    if situation.samples.get(rank) and situation.samples[rank].wait is None:
        assert verdict.proved <= judge(situation).proved


@always
@given(situations(), ranks)
def test_a_rank_that_may_come_after_all_makes_nobody_stuck(situation, rank):
    later = dataclasses.replace(
        situation, gone=situation.gone - {rank}, dead=situation.dead - {rank}
    )
    assert judge(later).suspected <= judge(situation).suspected


@always
@given(situations(), ranks)
def test_a_rank_that_nothing_is_known_of_makes_nobody_stuck(situation, rank):
    sighted = dataclasses.replace(
        situation, samples={r: has(s, doubts=()) for r, s in situation.samples.items()}
    )
    assert judge(without(sighted, rank)).proved <= judge(sighted).proved


@always
@given(situations(), ranks)
def test_data_that_is_on_its_way_makes_nobody_stuck(situation, rank):
    awake = changed(situation, rank, still=False)
    awake = dataclasses.replace(awake, dead=situation.dead - {rank})
    before = dataclasses.replace(situation, dead=situation.dead - {rank})
    assert judge(awake).suspected <= judge(before).suspected


@always
@given(situations())
def test_whoever_is_stuck_stays_so_when_the_able_ranks_have_gone(situation):
    gone = {
        r: has(s, state="idle", wait=None, issuers=()) if s.wait is None else s
        for r, s in situation.samples.items()
    }
    idle = frozenset(r for r, s in gone.items() if s.state == "idle")
    alone = dataclasses.replace(situation, samples=gone, gone=idle, outside=())
    assert judge(situation).proved <= judge(alone).proved


@always
@given(st.lists(calls, min_size=1, max_size=3), st.lists(st.integers(1, 3), min_size=SIZE))
def test_nothing_is_suspected_where_all_have_come_with_calls_that_fit(entries, numbers):
    """However far each has got, and whether data moves or not."""
    own = [
        has(e, number=n, root=1, splits=((1,) * SIZE, (1,) * SIZE) if "all_to" in e.name else None)
        for n, e in enumerate(entries, 1)
    ]
    ranks_ = [
        waits(r, "collective", group(range(SIZE), *own), number=min(numbers[r], len(own)))
        for r in range(SIZE)
    ]
    assert decide(SIZE, *ranks_) == Verdict()


# -- against a simulation -------------------------------------------------------------------------

#: Members of a group of the simulation: all, or two of three ranks.
SIMULATED = ((WORLD, (0, 1, 2)), ("1", (0, 1)))
#: Of a message: kind, rank, peer (-1: any), tag, its number among those.
End = tuple[str, int, int, int, int]


class Machine:
    """Run programs of ranks without a process: each issuer of a rank one step at a time.

    ``programs`` has the operations of each issuer: (rank, -1) is a main thread, (rank, 0) a
    thread beside it. A collective ends when all members have issued it, an end of a message when
    the other end has been issued: the earliest one that fits.
    """

    def __init__(self, programs):
        self.programs = programs
        self.at = dict.fromkeys(programs, 0)
        self.waiting = {}  # issuer -> what it has issued and waits for
        self.counts = {}  # calls of a rank in a group, messages of a kind
        self.open, self.matched = [], set()

    def has_ended(self, node):
        return self.at[node] == len(self.programs.get(node, ()))

    def may_go_on(self, node):
        return not self.has_ended(node) and (node not in self.waiting or self.is_over(node))

    def is_over(self, node):
        kind, *what = self.waiting[node]
        if kind == "meet":
            key, number = what
            return all(self.counts.get((r, key), 0) >= number for r in key[1])
        if kind == "join":
            return (node[0], 0) not in self.programs or self.has_ended((node[0], 0))
        return self.waiting[node] in self.matched

    def step(self, node):
        if self.waiting.pop(node, None) is None:
            issued, blocks = self.issue(node[0], *self.programs[node][self.at[node]])
            if blocks:
                self.waiting[node] = issued
                return
        self.at[node] += 1

    def count(self, *what):
        self.counts[what] = self.counts.get(what, 0) + 1
        return self.counts[what]

    def issue(self, rank, kind, *what):
        if kind == "meet":
            (key,) = what
            return ("meet", key, self.count(rank, key)), True
        if kind == "join":
            return ("join",), True
        peer, tag, blocks = what
        end = (kind, rank, peer, tag, self.count(rank, kind, peer, tag))
        other = next((o for o in self.open if fits(o, end)), None)
        if other is None:
            self.open.append(end)
        else:
            self.open.remove(other)
            self.matched |= {end, other}
        return end, blocks

    def run(self):
        """Run until nobody can go on."""
        while able := [node for node in self.programs if self.may_go_on(node)]:
            self.step(able[0])

    def wait(self, node):
        """Return what an issuer waits for, as its rank says it."""
        if node not in self.waiting or (self.waiting[node] == ("join",) and self.is_over(node)):
            return None
        kind, *what = self.waiting[node]
        if kind == "join":
            return Wait("thread")
        if kind == "meet":
            return Wait("collective", (tuple(what),))
        _, peer, tag, number = what
        return Wait(kind, ((SIMULATED[0], number),), peer=peer, tag=tag, number=number)

    def situation(self):
        """Return what the ranks say of themselves now."""
        moves = any(n in self.waiting and self.is_over(n) for n in self.programs)
        known = {}
        for rank in range(3):
            main, other = (rank, -1), (rank, 0)
            wait = self.wait(main)
            idle = self.has_ended(main)
            issuers = ()
            if other in self.programs and not self.has_ended(other):
                issuers = (Issuer(THREAD.name, self.wait(other)),)
            state = "idle" if idle else "waiting" if wait else "computing"
            known[rank] = Sample(
                rank, state, not moves, wait, groups=self.groups(rank), issuers=issuers
            )
        gone = frozenset(r for r, s in known.items() if s.state == "idle")
        return Situation(3, known, gone)

    def groups(self, rank):
        found = {}
        for key in SIMULATED:
            if rank in key[1]:
                issued = [call(n) for n in range(1, self.counts.get((rank, key), 0) + 1)]
                mine = {k[1:]: n for k, n in self.counts.items() if len(k) == 4 and k[0] == rank}
                posted = mine if key == SIMULATED[0] else {}
                found[key] = group(key[1], *issued, posted=posted, name=key[0])
        return found

    def stuck(self):
        return {rank for rank, place in self.waiting if place < 0}


def fits(a, b):
    """Tell whether two ends of messages meet."""
    (kind, rank, peer, tag, _), (other, them, their_peer, their_tag, _) = a, b
    return (
        (kind == "send") != (other == "send")
        and tag == their_tag
        and peer in (them, -1)
        and their_peer in (rank, -1)
        and rank != them
    )


def operations(rank, thread):
    peers = st.sampled_from([r for r in range(3) if r != rank])
    tags, blocks = st.integers(0, 1), st.integers(0, 3).map(bool)
    met = st.tuples(st.just("meet"), st.sampled_from([k for k in SIMULATED if rank in k[1]]))
    named = st.tuples(st.sampled_from(["send", "recv"]), peers, tags, blocks)
    from_any = st.tuples(st.just("recv_any"), st.just(-1), tags, blocks)
    kinds = [met, named, named, from_any]
    return st.one_of(*kinds) if thread else st.one_of(*kinds, st.just(("join",)))


@st.composite
def machines(draw):
    programs = {}
    for rank in range(3):
        programs[rank, -1] = draw(st.lists(operations(rank, False), max_size=4))
        if not draw(st.integers(0, 2)):
            programs[rank, 0] = draw(st.lists(operations(rank, True), max_size=3))
    machine = Machine(programs)
    for choice in draw(st.lists(st.integers(0, 5), max_size=16)):
        if able := [node for node in programs if machine.may_go_on(node)]:
            machine.step(able[choice % len(able)])
    return machine


simulated = settings(always, max_examples=300)


@simulated
@given(machines())
def test_nobody_is_proved_stuck_who_goes_on_in_a_simulation(machine):
    situation = machine.situation()
    verdict = judge(situation)
    before = dict(machine.at)
    machine.run()
    assert verdict.proved <= machine.stuck()
    assert all(machine.at[rank, -1] == before[rank, -1] for rank in verdict.proved)
    if all(i.wait for s in situation.samples.values() for i in s.issuers):
        assert verdict.suspected == verdict.proved  # there was nothing to doubt


@simulated
@given(machines())
def test_whoever_waits_when_nothing_can_go_on_is_proved_stuck(machine):
    machine.run()
    assert judge(machine.situation()).proved == machine.stuck()


# -- what cannot be seen ------------------------------------------------------------------------


def test_what_has_come_to_a_rank_and_is_not_read_yet_is_on_its_way():
    key = (WORLD, (0, 1))
    sender = ended(0, Group(key, 0, {}, {("send", 1, 0): 1}, 0))
    took_any = Group(key, 0, {}, {("recv_any", -1, 0): 1, ("recv", 0, 0): 1}, 0)
    receiver = waits(1, "recv", took_any, peer=0)
    assert stuck(2, sender, receiver) == {1}
    assert stuck(2, sender, dataclasses.replace(receiver, still=False)) == set()


def test_a_thread_may_have_any_name():
    name = "a thread of rank {rank} is alive: {job} {0} {"
    thread = dataclasses.replace(ended(0), issuers=(Issuer(name),))
    verdict = judge(Situation(2, {0: thread, 1: in_call(1, 2, call(1))}, frozenset({0})))
    assert verdict.proved == set()
    assert verdict.suspected == {1}
    assert verdict.doubts == ("a thread of rank 0 is alive: {job} {0} {",)
