"""Every explanation of a deadlock, once."""

from __future__ import annotations

import dataclasses

import pytest

from labkit.deadlock.case import Case
from labkit.deadlock.cause import EXPLANATIONS, likely_cause
from labkit.deadlock.collective_causes import BACKWARDS, DDP_EVALUATION
from labkit.deadlock.exit_reason import ENDED, NOT_ASKED, ExitReason
from labkit.deadlock.needs import Situation
from labkit.deadlock.wait_graph import judge
from labkit.wire.samples import Entry, Group, Issuer, Message, Sample, Wait


def call(name="all_reduce", number=1, shape=(4,), kind="Float", root=None):
    return Entry(number, name, (shape,), (kind,), False, root)


def group(size, *entries, name="0"):
    last = max((e.number for e in entries), default=0)
    key = (name, tuple(range(size)))
    return Group(key, last, {e.number: e for e in entries}, {}, 0)


def waits(kind, place, number=1, **named):
    """Make the sample of a rank that waits; ``place`` is its group."""
    wait = Wait(kind, ((place.key, number),), number=number, **named)
    return Sample(0, "waiting", True, wait, groups={place.key: place})


def in_call(size, entry=None, name="0", **named):
    entry = entry or call()
    return waits("collective", group(size, entry, name=name), entry.number, **named)


def sends(size, peer, **named):
    return waits("send", group(size), peer=peer, **named)


def receives(size, peer=-1, **named):
    return waits("recv" if peer >= 0 else "recv_any", group(size), peer=peer, **named)


def joins(size, **named):
    return Sample(0, "waiting", True, Wait("init", size=size, **named), joined=False)


def makes(*members, number=1):
    """Make a rank that waits in ``new_group``, of these members."""
    making = ("5", members)
    wait = Wait("new_group", ((group(2).key, 0),), number=number, making=making)
    return Sample(0, "waiting", True, wait, made=max(number, 0))


def own_group_of(*members):
    """Make one of four ranks that waits in the group that it has made by itself."""
    world, own = group(4), Group(("5", members), 1, {1: call()}, {}, 0)
    wait = Wait("collective", ((own.key, 1),), number=1)
    return Sample(0, "waiting", True, wait, groups={world.key: world, own.key: own})


def asks_store(key):
    return Sample(0, "waiting", True, Wait("store", at=key, doubt="anybody may set it"))


def on_device(size, *entries, messages=()):
    place = group(size, *entries)
    options = tuple((place.key, e.number) for e in entries)
    wait = Wait("device", options, messages=messages)
    return Sample(0, "waiting", True, wait, groups={place.key: place})


def end_of(kind, peer, tag=0):
    """Make the first message of its kind with ``peer``, in the group of two ranks."""
    return Message(kind, group(2).key, 1, peer, tag)


def parked(*issuers, **named):
    """Make a rank whose main thread waits for another one of its process."""
    wait = Wait("thread", **named)
    return Sample(0, "waiting", True, wait, groups={group(2).key: group(2)}, issuers=issuers)


def in_thread(wait):
    return Issuer("a thread of rank {rank} is alive: Thread-1 (run)", wait)


def beside(sample, entry, wait):
    """Let another thread of a rank wait too, in the collective ``entry`` of the same group."""
    (place,) = sample.groups.values()
    both = {**place.entries, entry.number: entry}
    groups = {place.key: dataclasses.replace(place, entries=both)}
    return dataclasses.replace(sample, groups=groups, issuers=(in_thread(wait),))


def posts(sample, *ends):
    """Let a rank have posted messages: one per (kind, peer), with tag 0."""
    (place,) = sample.groups.values()
    posted = {(kind, peer, 0): 1 for kind, peer in ends}
    groups = {place.key: dataclasses.replace(place, posted=posted)}
    return dataclasses.replace(sample, groups=groups)


def ended(**named):
    return Sample(0, "idle", True, **named)


def case(*samples, exit_reason=ENDED, dead=()):
    """Make the case of these ranks, in order; those that are idle are gone.

    It is only suspected where nothing is proved.
    """
    known = {r: dataclasses.replace(s, rank=r) for r, s in enumerate(samples)}
    gone = {r for r, s in known.items() if s.state == "idle"}
    situation = Situation(len(samples), known, frozenset(gone), frozenset(dead))
    found, exit_reasons = judge(situation), dict.fromkeys(gone, exit_reason)
    if found.proved:
        return Case(situation, found.proved, exit_reasons)
    return Case(situation, found.suspected, exit_reasons, found.doubts)


BACKWARD = {"call": "backward", "where": "In[7], line 9"}
LOOP = {"call": "all_reduce", "where": "In[7], line 4"}
METRIC = {"call": "all_reduce", "where": "In[7], line 9"}
EVALUATION = {"call": DDP_EVALUATION, "where": "In[7], line 4"}
KEEPS_PLACE = ended(places=frozenset({("In[7], line 4", "0")}))

#: The ranks of a deadlock, and what the explanation says.
CASES = {
    "new_group of its own only": (
        case(*(own_group_of(*members) for members in ((0, 1), (0, 1), (2, 3), (2, 3)))),
        "Rank 0 made the group of ranks 0–1 where rank 2 made that of ranks 2–3: every rank has "
        "to call new_group for every group, in the same order",
    ),
    "new_group": (
        case(waits("new_group", group(2)), ended()),
        "new_group has to be called by every rank of the lab",
    ),
    "new_group of members alone": (
        case(makes(0, 1, number=-1), ended()),
        "With use_local_synchronization=True, new_group waits for the members of the group: each",
    ),
    "new_group, not the same": (
        case(makes(0, 1, 2), makes(0, 1), ended(made=9)),
        "They make different groups. Every rank has to make the same groups in one order.",
    ),
    "init": (
        case(joins(2), ended(joined=False)),
        "init_process_group returns when all world_size ranks have called it.",
    ),
    "init of too many": (
        case(joins(3), joins(3)),
        "world_size=3 is more than the 2 ranks that are here",
    ),
    "init of different worlds": (
        case(joins(4), joins(3), joins(4)),
        "The values of world_size differ: 3 on rank 1, 4 on ranks 0, 2. All ranks of a group need",
    ),
    "init of different worlds, of which one was formed": (
        case(joins(3), ended(groups={group(2).key: group(2)})),
        "The values of world_size differ: 2 on rank 1, 3 on rank 0. All ranks of a group need",
    ),
    "init at different addresses": (
        case(joins(2, at="tcp://a:1"), joins(2, at="tcp://a:2")),
        "They meet at different addresses: rank 0 tcp://a:1; rank 1 tcp://a:2. All of a group",
    ),
    "init with one number": (
        case(joins(3, me=0), joins(3, me=1), joins(3, me=1)),
        "Ranks 1–2 all gave rank=1. Each needs its own number.",
    ),
    "a store": (
        case(asks_store("'ready'"), ended()),
        "Nobody sets the key 'ready', and get and wait need it.",
    ),
    "not asked": (
        case(in_call(2), ended(), exit_reason=NOT_ASKED),
        "The cell ran without rank 1, but the group has them as members",
    ),
    "tags": (
        case(sends(2, 1, tag=5), receives(2, 0, tag=6)),
        "The tags differ: rank 0 waits in send with tag 5, rank 1 in recv with tag 6.",
    ),
    "tags, from any": (
        case(receives(2, tag=6), sends(2, 0, tag=5)),
        "The tags differ: rank 1 waits in send with tag 5, rank 0 in recv_any with tag 6.",
    ),
    "no receive": (
        case(sends(2, 1), ended()),
        "a receive of rank 1 is missing (or goes to another rank).",
    ),
    "no send": (case(receives(2, 1), ended()), ": a send of rank 1 is missing"),
    "no send to any": (case(receives(3), ended(), ended()), ": a send of ranks 1–2 is missing"),
    "neither": (
        case(sends(3, 2), receives(3, 2), ended()),
        "a receive and a send of rank 2 are missing",
    ),
    "send first": (
        case(sends(2, 1), sends(2, 0)),
        "Every one of them sends before it receives, and a send is over only when",
    ),
    "receive first": (
        case(receives(2, 1), receives(2, 0)),
        "Every one of them waits to receive before it sends.",
    ),
    "no pairs": (
        case(sends(3, 1), receives(3, 2), sends(3, 0)),
        "The sends and receives do not pair up",
    ),
    "receives posted, of the rank that is sent to": (
        case(*(posts(sends(3, r), ("send", r), ("recv", r)) for r in (1, 2, 0))),
        "receive on the rank that it names, with the same tag and the same size, and that names "
        "the sender. Rank 0 sends to rank 1, and rank 2 receives from rank 0",
    ),
    "sends posted, to the rank that is received from": (
        case(*(posts(receives(3, r), ("send", r), ("recv", r)) for r in (1, 2, 0))),
        "The sends and receives do not pair up",
    ),
    "a pair that agrees on the tag": (
        case(sends(2, 1, tag=5), receives(2, 0, tag=5)),
        "The sends and receives do not pair up",
    ),
    "another call": (case(in_call(2), in_call(2, call("barrier"))), "in different collectives."),
    "another shape": (
        case(in_call(2), in_call(2, call(shape=(5,)))),
        "They call all_reduce with different shapes.",
    ),
    "another type": (
        case(in_call(2), in_call(2, call(kind="Double"))),
        "They call all_reduce with different types of tensors.",
    ),
    "splits that do not fit": (
        case(
            in_call(2, dataclasses.replace(call("all_to_all"), splits=((1, 2), (1, 3)))),
            in_call(2, dataclasses.replace(call("all_to_all"), splits=((3, 4), (1, 4)))),
        ),
        "They call all_to_all with splits that do not fit: what one rank gives another",
    ),
    "two sources": (
        case(in_call(2, call("scatter", root=0)), in_call(2, call("scatter", root=1))),
        "They name different ranks as the source of scatter.",
    ),
    "two destinations": (
        case(in_call(2, call("reduce", root=0)), in_call(2, call("reduce", root=1))),
        "They name different ranks as the destination of reduce.",
    ),
    "a call and a message": (
        case(in_call(2), receives(2, 0)),
        "Some ranks wait in a collective, others for a message from them.",
    ),
    "two sources, as far as the frames tell": (
        case(in_call(2, call("scatter"), root=0), in_call(2, call("scatter"), root=1)),
        "They name different ranks as the source of scatter.",
    ),
    "another call on the device": (
        case(on_device(2, call()), on_device(2, call("barrier"))),
        "They are in different collectives.",
    ),
    "a call and a message on the device": (
        case(on_device(2, call()), on_device(2, messages=(end_of("recv", 0),))),
        "Some ranks wait in a collective, others for a message from them.",
    ),
    "receive first on the device": (
        case(
            on_device(2, messages=(end_of("recv", 1), end_of("send", 1))),
            on_device(2, messages=(end_of("recv", 0), end_of("send", 0))),
        ),
        "Every one of them waits to receive before it sends.",
    ),
    "other tags on the device": (
        case(
            on_device(2, messages=(end_of("send", 1, tag=5),)),
            on_device(2, messages=(end_of("recv", 0, tag=6),)),
        ),
        "The tags differ: rank 0 waits in send with tag 5, rank 1 in recv with tag 6.",
    ),
    "no receive for the device's send": (
        case(on_device(2, messages=(end_of("send", 1),)), ended()),
        "a receive of rank 1 is missing (or goes to another rank).",
    ),
    "a thread that receives": (
        case(parked(in_thread(Wait("recv", ((group(2).key, 1),), peer=1))), ended()),
        ": a send of rank 1 is missing",
    ),
    "two groups": (
        case(in_call(2, name="1"), in_call(2, name="2")),
        "They are in collectives of different groups.",
    ),
    "steps of DDP": (
        case(in_call(2, **BACKWARD), ended()),
        "Rank 1 made fewer training steps, or used fewer of the model's parameters. DDP needs",
    ),
    "steps of a DDP model's forward": (
        case(in_call(2, call="DistributedDataParallel.forward"), ended()),
        "Rank 1 made fewer training steps,",
    ),
    "steps of DDP, and a metric behind the loop": (
        case(
            in_call(3, call(shape=(5,)), **BACKWARD),
            in_call(3, **METRIC),
            in_call(3, **METRIC),
        ),
        "Rank 0 is in DDP's backward, ranks 1–2 are past it, at In[7], line 9: they made fewer "
        "training steps, or a call that the others do not make. DDP needs the same number of",
    ),
    "steps of DDP, and a barrier behind the loop": (
        case(in_call(2, **BACKWARD), in_call(2, call("barrier"), **METRIC)),
        "Rank 0 is in DDP's backward, rank 1 is past it, at In[7], line 9: it made fewer",
    ),
    "a loop, and another call behind it": (
        case(
            in_call(2, **LOOP),
            dataclasses.replace(in_call(2, call(shape=(1,)), **METRIC), places=KEEPS_PLACE.places),
        ),
        "Rank 0 is still at In[7], line 4, rank 1 is past it, at In[7], line 9: a loop is shorter "
        "there (uneven data?), or",
    ),
    "another shape on another line": (
        case(in_call(2, **LOOP), in_call(2, call(shape=(1,)), **METRIC)),
        "They call all_reduce with different shapes.",
    ),
    "an evaluation, and a barrier behind it": (
        case(in_call(2, call("broadcast"), **EVALUATION), in_call(2, call("barrier"), **METRIC)),
        "Rank 0 is in the model's forward, rank 1 is past it, at In[7], line 9. The forward of a "
        "DDP model with buffers (BatchNorm) is a collective: to evaluate on one rank alone, call "
        "model.module there.",
    ),
    "an evaluation of a DDP model": (
        case(in_call(2, call("broadcast"), **EVALUATION), ended()),
        "Rank 1 did not call the model here. The forward of a DDP model with buffers",
    ),
    "a backward without DDP": (
        case(in_call(2, call=BACKWARDS[0]), ended()),
        "backward() communicates too: rank 1 did not call it.",
    ),
    "a gradient without DDP": (
        case(in_call(3, call=BACKWARDS[1]), ended(), ended()),
        "grad() communicates too: ranks 1–2 did not call it.",
    ),
    "a backward without DDP, made fewer times": (
        case(in_call(2, **{**LOOP, "call": "backward()"}), KEEPS_PLACE),
        "Rank 1 made this call too, but fewer times: a loop is shorter there (uneven data?), or a",
    ),
    "a backward without DDP, after an error": (
        case(
            in_call(2, call=BACKWARDS[0]), ended(), exit_reason=ExitReason("raised", "ValueError")
        ),
        "Rank 1 stopped at an error before this call.",
    ),
    "a condition in a loop": (
        case(in_call(2, **LOOP, line="if flag: dist.all_reduce(x)"), KEEPS_PLACE),
        "Rank 1 made this call too, but fewer times: the condition before it was not met each "
        "time there. Every rank has to make the same number of calls.",
    ),
    "two threads": (
        case(
            in_call(2),
            beside(
                in_call(2, call(number=2)),
                call("all_gather"),
                Wait("collective", ((group(2).key, 1),), call="save"),
            ),
        ),
        "Two threads of rank 1 call collectives of the same group, in an order that differs from "
        "rank to rank: another thread than the main one is in all_gather of save. Give that",
    ),
    "a message that goes to another rank": (
        case(posts(sends(3, 2), ("send", 2)), posts(receives(3, 0), ("recv", 0)), ended()),
        "are missing (or go to another rank). Rank 0 sends to rank 2, and rank 1 receives from "
        "rank 0: one of them may name the wrong rank.",
    ),
    "a message from another rank": (
        case(posts(sends(3, 1), ("send", 1)), posts(receives(3, 2), ("recv", 2)), ended()),
        "Rank 0 sends to rank 1, and rank 1 receives from rank 2: one of them may name the wrong",
    ),
    "a shorter loop": (
        case(in_call(3, **LOOP), KEEPS_PLACE, KEEPS_PLACE),
        "Ranks 1–2 made this call too, but fewer times: a loop is shorter there (uneven data?), or "
        "a condition was not met each time.",
    ),
    "the same line in another group": (
        case(in_call(3, name="1", **LOOP), in_call(3, name="1", **LOOP), KEEPS_PLACE),
        "Rank 2 made this call in another group. Every member of a group",
    ),
    "an error": (
        case(in_call(2), ended(), exit_reason=ExitReason("raised", "ValueError")),
        "Rank 1 stopped at an error before this call.",
    ),
    "a death": (
        case(in_call(2), ended(), exit_reason=ExitReason("died", code=-9), dead={1}),
        "The process of rank 1 is gone.",
    ),
    "a condition": (
        case(in_call(2), ended()),
        "The call stands under a condition (an if on the rank, an early return, a continue) that "
        "rank 1 did not meet.",
    ),
    "otherwise": (
        case(parked(in_thread(Wait("thread"))), ended()),
        "Every rank waits for another one.",
    ),
}


@pytest.mark.parametrize(("deadlock", "says"), CASES.values(), ids=CASES)
def test_the_likely_cause(deadlock, says):
    assert deadlock.stuck
    assert says in likely_cause(deadlock)


def test_every_explanation_has_a_case():
    first = {
        next(e for e in EXPLANATIONS if e(deadlock)).__name__ for deadlock, _ in CASES.values()
    }
    assert first == {e.__name__ for e in EXPLANATIONS}


def test_an_explanation_of_the_lab_comes_before_one_of_the_code():
    """Rank 1 was not asked: that it made the call before does not matter."""
    waiting = in_call(2, **LOOP)
    assert "fewer times" in likely_cause(case(waiting, KEEPS_PLACE))
    not_asked = case(waiting, KEEPS_PLACE, exit_reason=NOT_ASKED)
    assert "The cell ran without rank 1" in likely_cause(not_asked)


def test_absent_are_those_that_are_waited_for_and_do_not_wait():
    elsewhere = group(4, name="1")
    deadlock = case(in_call(3), in_call(3), ended(), ended(groups={elsewhere.key: elsewhere}))
    assert deadlock.stuck == {0, 1}
    assert deadlock.absent() == {2}


def test_a_rank_that_is_live_is_not_absent():
    deadlock = case(in_call(3), ended(), Sample(0, "computing"))
    assert deadlock.absent() == {1}


def test_a_rank_that_waits_itself_is_not_absent():
    deadlock = case(receives(2, 1), receives(2, 0))
    late = dataclasses.replace(deadlock.situation, gone=frozenset({1}))
    assert deadlock.stuck == judge(late).proved == {0, 1}
    assert Case(late, deadlock.stuck).absent() == set()


def test_a_message_that_is_met_or_taken_by_anybody_is_not_astray():
    """Rank 0's send to rank 2 is received, or may be by a receive from any rank."""
    for third in (("recv", 0), ("recv_any", -1)):
        done = posts(ended(groups={group(3).key: group(3)}), third)
        deadlock = case(posts(receives(3, 1), ("send", 2), ("recv", 1)), ended(), done)
        assert "may name the wrong rank" not in likely_cause(deadlock)


def test_a_thread_in_another_group_is_not_the_cause():
    elsewhere = Wait("collective", ((group(2, name="1").key, 1),), call="save")
    other = beside(in_call(2, call("barrier")), call(number=9), elsewhere)
    assert "in different collectives" in likely_cause(case(in_call(2), other))


def test_waits_are_in_rank_order():
    deadlock = case(*(in_call(9) for _ in range(8)), ended())
    assert list(deadlock.waits) == list(range(8))


def test_the_frames_and_the_records_of_a_root_both_count():
    """The entry has it where Python issued the call; else the frame may tell."""
    mixed = case(in_call(2, call("scatter", root=0)), in_call(2, call("scatter"), root=1))
    assert "different ranks as the source" in likely_cause(mixed)


def test_a_rank_that_waits_for_its_own_thread_shows_what_that_waits_for():
    there = {"where": "In[7], line 3", "line": "future.result()"}
    inner = Wait("recv", ((group(2).key, 1),), peer=1)
    assert case(parked(in_thread(inner), **there), ended()).waits[0] == dataclasses.replace(
        inner, **there
    )
    own = dataclasses.replace(inner, where="In[7], line 2", line="dist.recv(x, 1)")
    assert case(parked(in_thread(own), **there), ended()).waits[0] == own


def test_a_rank_that_waits_for_nothing_but_threads_shows_that():
    assert case(parked(in_thread(Wait("thread"))), ended()).waits[0].kind == "thread"


def test_absent_is_also_whom_a_message_on_the_device_waits_for():
    end = Message("recv", group(2).key, 1, 1, 0)
    assert case(on_device(2, messages=(end,)), ended()).absent() == {1}


def test_a_collective_on_the_device_is_the_entry_of_the_case():
    deadlock = case(on_device(2, call()), ended())
    assert deadlock.entry(0) == call()
    assert case(receives(2, 1), ended()).entry(0) is None
    end = Message("recv", group(2).key, 1, 1, 0)
    assert case(on_device(2, messages=(end,)), ended()).entry(0) is None


def test_what_is_suspected_has_its_doubts():
    assert case(asks_store("'a'"), ended()).doubts == ("anybody may set it",)
    assert case(in_call(2), ended()).doubts == ()


def test_a_thread_that_is_waited_for_is_compared_with_ranks_elsewhere():
    """What such a rank waits for is put together anew each time it is asked for."""
    key = group(2).key
    entry = Entry(1, "all_reduce", ((1,),), ("Float",), False)
    wait = Wait("collective", ((key, 1),), call="all_reduce", where="In[7], line 4")
    place = dataclasses.replace(group(2), last=1, entries={1: entry})
    main = Sample(0, "waiting", True, Wait("thread", where="In[7], line 9"), groups={key: place},
                  issuers=(in_thread(wait),))  # fmt: skip
    other = dataclasses.replace(entry, shapes=((2,),))
    stands = dataclasses.replace(wait, where="In[7], line 12")
    rank = Sample(1, "waiting", True, stands, groups={key: dataclasses.replace(
        place, entries={1: other})}, places=frozenset({("In[7], line 4", key[0])}))  # fmt: skip
    assert likely_cause(case(main, rank))
