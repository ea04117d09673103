"""Messages for learners, word for word."""

from __future__ import annotations

import dataclasses

import pytest

from labkit.deadlock import message as story
from labkit.deadlock.case import Case
from labkit.deadlock.exit_reason import ENDED, NOT_ASKED, ExitReason
from labkit.deadlock.needs import Situation
from labkit.deadlock.wait_graph import judge
from labkit.wire.samples import Entry, Group, Issuer, Message, Sample, Wait

WORLD = ("0", (0, 1, 2, 3))
PAIR = ("4", (0, 1))


def call(name="all_reduce", number=3, *tensors):
    chosen = tensors or (("Float", (4,)),)
    shapes, types = tuple(s for _, s in chosen), tuple(t for t, _ in chosen)
    return Entry(number, name, shapes, types, False)


def in_call(entry, key=WORLD, **named):
    wait = Wait("collective", ((key, entry.number),), **named)
    group = Group(key, entry.number, {entry.number: entry}, {}, 0)
    return Sample(0, "waiting", True, wait, groups={key: group})


def message(kind, peer=-1, **named):
    return Sample(0, "waiting", True, Wait(kind, ((WORLD, 1),), peer, **named))


def case(*samples, exit_reasons=None):
    """Make the case of these ranks, in order; None is a rank that is gone.

    It is only suspected where nothing is proved.
    """
    known = {r: dataclasses.replace(s, rank=r) for r, s in enumerate(samples) if s}
    gone = frozenset(range(len(samples))) - known.keys()
    known |= {r: Sample(r, "idle", True) for r in gone}
    situation = Situation(len(samples), known, gone)
    told = exit_reasons or dict.fromkeys(gone, ENDED)
    found = judge(situation)
    if found.proved:
        return Case(situation, found.proved, told)
    return Case(situation, found.suspected, told, found.doubts)


HERE = {"where": "In[7], line 3", "line": "dist.all_reduce(x)", "call": "all_reduce"}


def test_a_skipped_collective():
    deadlock = case(None, *(in_call(call(), **HERE) for _ in range(3)))
    assert story.message_lines(deadlock) == [
        "ranks 1–3 wait for rank 0, which has ended its cell.",
        "  ranks 1–3 wait in all_reduce (float32 [4], collective 3) at In[7], line 3:  "
        "dist.all_reduce(x)",
        "Cause: The call stands under a condition (an if on the rank, an early return, a "
        "continue) that rank 0 did not meet. Every rank of a group has to make it.",
    ]


def test_two_ranks_that_send_to_each_other():
    here = {"where": "In[2], line 4", "line": "dist.send(x, peer)", "call": "send"}
    assert story.message_lines(case(message("send", 1, **here), message("send", 0, **here))) == [
        "ranks 0–1 wait for one another.",
        "  rank 0 waits in send to rank 1 at In[2], line 4:  dist.send(x, peer)",
        "  rank 1 waits in send to rank 0 at In[2], line 4:  dist.send(x, peer)",
        "Cause: Every one of them sends before it receives, and a send is over only when its "
        "message is taken. Let one side receive first, or use isend or batch_isend_irecv.",
    ]


def test_ranks_that_are_absent_for_different_reasons():
    exit_reasons = {0: ENDED, 1: NOT_ASKED, 2: ENDED}
    deadlock = case(None, None, None, in_call(call(), **HERE), exit_reasons=exit_reasons)
    assert story.message_lines(deadlock)[:-1] == [
        "rank 3 waits for ranks 0–2, which cannot come any more.",
        "  rank 3 waits in all_reduce (float32 [4], collective 3) at In[7], line 3:  "
        "dist.all_reduce(x)",
        "  ranks 0, 2 have ended their cell",
        "  rank 1 was not asked to run the cell",
    ]


@pytest.mark.parametrize(
    ("exit_reason", "one", "several"),
    [
        (ENDED, "has ended its cell", "have ended their cell"),
        (
            NOT_ASKED,
            "was not asked to run the cell",
            "were not asked to run the cell",
        ),
        (ExitReason("raised", "ValueError"), "has raised ValueError", "have raised ValueError"),
        (ExitReason("died", code=3), "ended with exit code 3", "ended with exit code 3"),
    ],
)
def test_verbs_agree_with_the_number_of_ranks(exit_reason, one, several):
    waiting = in_call(call())
    single = case(waiting, waiting, waiting, None, exit_reasons={3: exit_reason})
    assert story.headline(single) == f"ranks 0–2 wait for rank 3, which {one}."
    assert story.who_is_absent(single) == []
    double = case(waiting, None, None, None, exit_reasons=dict.fromkeys((1, 2, 3), exit_reason))
    assert story.headline(double) == f"rank 0 waits for ranks 1–3, which {several}."
    assert story.who_is_absent(double) == []


def test_one_rank_alone_that_waits_for_nobody_who_is_absent():
    """Its message was taken by an earlier receive from any; the other one never comes."""
    group = Group(WORLD, 0, {}, {("recv_any", -1, 0): 1}, 0)
    own = dataclasses.replace(message("recv", 1), groups={WORLD: group})
    group = Group(WORLD, 0, {}, {("send", 0, 0): 1}, 0)
    other = dataclasses.replace(message("recv", 0), groups={WORLD: group})
    deadlock = case(own, other)
    assert deadlock.stuck == {0, 1}
    alone = dataclasses.replace(deadlock, stuck=frozenset({0}))
    assert story.headline(alone) == "rank 0 waits for something that cannot come."


TICKS = Issuer("a thread of rank {rank} is alive: Thread-3 (tick)")


def test_a_suspicion_says_what_could_still_come():
    ticking = Sample(0, "idle", True, issuers=(TICKS,))
    known = {r: dataclasses.replace(in_call(call(), **HERE), rank=r) for r in (1, 2, 3)}
    verdict = judge(situation := Situation(4, {0: ticking, **known}, frozenset({0})))
    assert not verdict.proved
    suspected = Case(situation, verdict.suspected, {0: ENDED}, verdict.doubts)
    assert story.suspicion(suspected) == [
        "Suspected deadlock: ranks 1–3 wait for rank 0, which has ended its cell.",
        "  ranks 1–3 wait in all_reduce (float32 [4], collective 3) at In[7], line 3:  "
        "dist.all_reduce(x)",
        "  Not proved: a thread of rank 0 is alive: Thread-3 (tick).",
        "Cause, if it is one: The call stands under a condition (an if on the rank, an early "
        "return, a continue) that rank 0 did not meet. Every rank of a group has to make it.",
    ]


def test_a_store_is_suspected_with_its_key():
    asks = message("store", at="'ready'", where="In[3], line 1", doubt="anybody may set the key")
    told = story.suspicion(case(asks, None))
    assert told[1:3] == [
        "  rank 0 waits in a store, for the key 'ready' at In[3], line 1",
        "  Not proved: anybody may set the key.",
    ]
    assert told[-1] == "Cause, if it is one: Nobody sets the key 'ready', and get and wait need it."


def test_what_is_proved_has_nothing_that_may_come():
    assert story.what_may_come(case(in_call(call()), None)) == []


def test_a_call_that_started_elsewhere_has_both_places():
    at = {"where": "In[8], line 1", "line": "work.wait()", "issued": "In[7], line 2"}
    assert story.who_waits(case(in_call(call(), **at), None)) == [
        "  rank 0 waits in all_reduce (float32 [4], collective 3), started at In[7], line 2, at "
        "In[8], line 1:  work.wait()"
    ]


def test_ranks_at_one_line_are_one_line():
    a, b = in_call(call(), **HERE), in_call(call(), **{**HERE, "where": "In[7], line 5"})
    assert story.who_waits(case(a, b, a, None)) == [
        "  ranks 0, 2 wait in all_reduce (float32 [4], collective 3) at In[7], line 3:  "
        "dist.all_reduce(x)",
        "  rank 1 waits in all_reduce (float32 [4], collective 3) at In[7], line 5:  "
        "dist.all_reduce(x)",
    ]


def test_a_wait_outside_of_cells_has_no_place():
    assert story.who_waits(case(in_call(call()), None)) == [
        "  rank 0 waits in all_reduce (float32 [4], collective 3)"
    ]


def collective(entry, key=WORLD, **named):
    return Wait("collective", ((key, entry.number),), **named), entry


DESCRIPTIONS = {
    "all_reduce (float32 [4], collective 3)": collective(call(), call="all_reduce"),
    "all_gather (2 tensors, collective 1)": collective(
        call("all_gather", 1, ("Float", (2,)), ("Float", (2,)))
    ),
    "barrier (collective 2)": collective(Entry(2, "barrier", (), (), False)),
    "reduce (bfloat16 [], collective 1)": collective(call("reduce", 1, ("BFloat16", ()))),
    "all_reduce (QInt8 [2, 3], collective 1)": collective(call("all_reduce", 1, ("QInt8", (2, 3)))),
    "broadcast (int64 [1], collective 1, root 0)": collective(
        call("broadcast", 1, ("Long", (1,))), root=0
    ),
    "all_reduce (float32 [4], collective 3) of backward": collective(call(), call="backward"),
    "all_reduce (float32 [4], collective 3) in group 4 of ranks 0–1": collective(call(), PAIR),
    "a collective of wait_tensor": (Wait("collective", ((WORLD, 1),), call="wait_tensor"), None),
    "send to rank 1": (Wait("send", ((WORLD, 1),), 1, call="send"), None),
    "send to rank 1 with tag 5 of isend": (Wait("send", ((WORLD, 1),), 1, 5, call="isend"), None),
    "recv from rank 0 in group 4 of ranks 0–1": (Wait("recv", ((PAIR, 1),), 0), None),
    "recv from any rank": (Wait("recv_any", ((WORLD, 1),), call="recv"), None),
    "recv from any rank with tag 2": (Wait("recv_any", ((WORLD, 1),), tag=2), None),
    "monitored_barrier in group 4 of ranks 0–1": (Wait("monitored_barrier", ((PAIR, 1),)), None),
    "init_process_group": (Wait("init", size=4, call="init_process_group"), None),
    "new_group": (Wait("new_group", call="new_subgroups"), None),
    "a store, for the key 'a', 'b'": (Wait("store", at="'a', 'b'", call="wait"), None),
    "a wait for another thread of its own": (Wait("thread", call="result"), None),
    "something that labkit does not know": (Wait("unknown", call="wait"), None),
    "rpc_sync": (Wait("unknown", call="rpc_sync"), None),
    "all_gather (float32 [4], collective 3)": (
        Wait("device", ((WORLD, 3), (WORLD, 4))),
        call("all_gather"),
    ),
    "send to rank 1 in group 4 of ranks 0–1": (
        Wait("device", messages=(Message("send", PAIR, 2, 1, 0),)),
        None,
    ),
    "scatter (float32 [4], collective 3, root 2)": collective(
        dataclasses.replace(call("scatter"), root=2)
    ),
}


@pytest.mark.parametrize(("text", "wait", "entry"), [(k, *v) for k, v in DESCRIPTIONS.items()])
def test_a_wait_in_words(text, wait, entry):
    assert story.describe(wait, entry) == text
