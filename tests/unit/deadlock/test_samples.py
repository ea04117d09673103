"""What ranks answer, read into facts; ranks of torch become ranks of the lab."""

from __future__ import annotations

from labkit.deadlock.needs import Situation
from labkit.deadlock.samples import renumber
from labkit.deadlock.wait_graph import Verdict, judge
from labkit.wire.samples import Entry, Group, Issuer, Message, Sample, Size, Wait


def entry(number=1, name="all_reduce", shapes=((2, 3),), types=("Float",), done=False):
    return Entry(number, name, shapes, types, done)


def group(ranks, entries=(), name="0", posted=(), barriers=0):
    return Group(
        (name, tuple(ranks)),
        max((e.number for e in entries), default=0),
        {e.number: e for e in entries},
        dict(posted),
        barriers,
    )


def answer(me, groups=(), wait=None, **changed):
    """What a rank says of itself."""
    listed = {g.key: g for g in groups}
    state = "waiting" if wait else "computing"
    stamp, made, joined = (11, 22), len(groups), me >= 0
    return Sample(
        me, state, bool(wait), wait, stamp, listed, made=made, joined=joined, **changed
    )  # fmt: skip


def collective(*options, **more):
    return Wait("collective", options, **more)


def message(kind, peer, group, tag=0, number=1):
    """A wait for a message with a rank of torch's."""
    return Wait(kind, ((group.key, number),), peer=peer, tag=tag, number=number, me=0)


WORLD = ("0", (0, 1))


def test_a_sample_of_a_rank_with_the_labs_number_stays_as_it_is():
    wait = collective((WORLD, 1), call="all_reduce", where="In[7], line 3", line="f()", seconds=1.5)
    places = frozenset({("a", "0"), ("b", "0")})
    raw = answer(0, [group((0, 1), [entry()], barriers=2)], wait, places=places)
    sample = renumber({0: raw})[0]
    assert sample == raw
    assert sample.entry == entry()


def test_a_rank_outside_a_group_and_one_that_does_not_wait():
    samples = renumber({0: answer(-1), 1: answer(1, [group((0, 1))])})
    assert not samples[0].joined
    assert samples[1].joined
    assert samples[0].groups == {}
    assert samples[1].wait is None
    assert samples[1].entry is None


def test_elements_are_counted_tensor_by_tensor():
    shapes = ((2, 3), (), (0, 4))
    assert Entry(1, "all_gather", shapes, (), True).elements == (6, 1, 0)


def test_a_collective_that_the_recorder_no_longer_has():
    raw = answer(0, [group((0, 1), [entry(5)])], collective((WORLD, 2)))
    assert renumber({0: raw})[0].entry is None


def test_only_a_collective_has_an_entry():
    raw = answer(0, [group((0, 1), [entry()])], message("recv", 1, group((0, 1))))
    assert renumber({0: raw})[0].entry is None


def test_several_options_are_kept_in_order():
    groups = [group((0, 1), [entry(3)]), group((0, 1), [entry(3)], name="4")]
    wait = renumber({0: answer(0, groups, collective((("4", (0, 1)), 3), (WORLD, 3)))})[0].wait
    assert wait.options == ((("4", (0, 1)), 3), (WORLD, 3))


def test_an_option_of_an_unknown_group_is_left_out():
    raw = answer(0, [group((0, 1))], collective((("9", (0, 1)), 1), (WORLD, 2)))
    assert renumber({0: raw})[0].wait.options == ((WORLD, 2),)


def test_init_and_new_group_have_no_options():
    joining = renumber({0: answer(-1, wait=Wait("init", size=3))})[0].wait
    assert (joining.kind, joining.size, joining.options) == ("init", 3, ())
    making = renumber({0: answer(0, [group((0, 1))], Wait("new_group", number=2))})[0].wait
    assert (making.kind, making.number, making.options) == ("new_group", 2, ())


# -- a learner's own numbering ------------------------------------------------------------------


#: Torch's world of four.
ALL = ("0", (0, 1, 2, 3))


def reversed_lab(**waits):
    """Four ranks of a lab; rank r is torch's 3 - r."""
    world = group(range(4), [entry()], posted={("send", 0, 5): 2, ("recv_any", -1, 0): 1})
    return {r: answer(3 - r, [world], waits.get(f"rank{r}")) for r in range(4)}


def test_members_are_translated_in_the_order_of_the_group():
    for sample in renumber(reversed_lab()).values():
        assert list(sample.groups) == [("0", (3, 2, 1, 0))]


def test_messages_are_translated_and_any_stays_any():
    (found,) = renumber(reversed_lab())[2].groups.values()
    assert found.posted == {("send", 3, 5): 2, ("recv_any", -1, 0): 1}


def test_roots_are_translated():
    samples = renumber(reversed_lab(rank1=collective((ALL, 1), root=0)))
    assert samples[1].wait.root == 3


def test_a_call_without_a_root_has_none():
    assert renumber(reversed_lab(rank1=collective((ALL, 1))))[1].wait.root is None


def test_peers_are_translated():
    pair = group((1, 3), name="1")
    raw = {r: answer(3 - r, [pair]) for r in range(4)}
    raw[0] = answer(3, [pair], message("recv", 1, pair, tag=7, number=4))
    wait = renumber(raw)[0].wait
    assert (wait.peer, wait.tag) == (2, 7)
    assert wait.options == ((("1", (2, 0)), 4),)


def test_a_receive_from_any_has_no_peer():
    raw = answer(0, [group((0, 1))], message("recv_any", -1, group((0, 1))))
    assert renumber({0: raw})[0].wait.peer == -1


def test_a_part_of_the_lab_numbered_from_0():
    """Ranks 2 and 3 have a group of two of their own."""
    world = group((0, 1), [entry()])
    raw = {0: answer(-1), 1: answer(-1), 2: answer(0, [world]), 3: answer(1, [world])}
    samples = renumber(raw)
    assert list(samples[2].groups) == list(samples[3].groups) == [("0", (2, 3))]


def test_a_rank_without_an_answer_is_not_taken_for_another():
    """The lab's rank 3, torch's 0, computes and does not answer; the others wait for it."""
    raw = reversed_lab(**{f"rank{r}": collective((ALL, 1)) for r in range(3)})
    del raw[3]
    assert judge(Situation(4, renumber(raw))) == Verdict()


def test_a_number_without_an_answer_stays_where_all_others_are_the_same():
    pair = group((0, 5), [entry()])
    sample = renumber({0: answer(0, [pair], collective((pair.key, 1)))})[0]
    assert list(sample.groups) == [("0", (0, 5))]


def test_issuers_are_translated():
    thread = Issuer("a thread", message("recv", 0, group(range(4)), number=2))
    raw = reversed_lab()
    raw[1] = answer(2, [group(range(4))], issuers=(thread, Issuer("another")))
    first, second = renumber(raw)[1].issuers
    assert (first.wait.peer, first.wait.options) == (3, ((("0", (3, 2, 1, 0)), 2),))
    assert second == Issuer("another")


def test_roots_of_entries_sizes_and_dropped_messages_are_translated():
    root = Entry(1, "scatter", ((4,),), ("Float",), False, root=1)
    size = Size(4, "float32", "In[1], line 2", "dist.send(x, 0)")
    world = Group(
        ALL,
        1,
        {1: root, 2: entry(2)},
        {},
        0,
        sizes={("send", 0, 7, 1): size, ("recv_any", -1, 0, 1): size},
        dropped=frozenset({("send", 0, 7, 1)}),
    )
    raw = {r: answer(3 - r, [world]) for r in range(4)}
    (found,) = renumber(raw)[0].groups.values()
    assert [found.entries[n].root for n in (1, 2)] == [2, None]
    assert found.sizes == {("send", 3, 7, 1): size, ("recv_any", -1, 0, 1): size}
    assert found.dropped == {("send", 3, 7, 1)}


def test_the_group_that_is_being_made_is_translated():
    """It is in no list yet; the group that meets to make it may be the new one itself."""
    new = ("7", (1, 2))
    wait = Wait("new_group", ((new, 0),), number=-1, making=new)
    made = renumber(reversed_lab(rank1=wait))[1].wait
    assert made.making == ("7", (2, 1))
    assert made.options == ((("7", (2, 1)), 0),)


def test_messages_of_a_device_are_translated():
    ends = Message("send", ALL, 3, 0, 5), Message("recv_any", ALL, 1, -1, 0)
    found = renumber(reversed_lab(rank1=Wait("device", messages=ends)))[1].wait.messages
    assert found == (
        Message("send", ("0", (3, 2, 1, 0)), 3, 3, 5),
        Message("recv_any", ("0", (3, 2, 1, 0)), 1, -1, 0),
    )
