"""Run random programs whose end is known beforehand: no wrong verdict, no hang.

``programs`` draws them, ``reference`` works out how each ends, ``verdicts`` compares. Half of them
are correct, half have one fault. hypothesis makes a failing one smaller and prints its cell.
``LABKIT_PROGRAMS=300`` runs so many of each kind in place of the share below, and with
``LABKIT_PROGRAMS_SEED=1`` others.
"""

from __future__ import annotations

import pytest

import labkit

from ..support import programs
from ..support.on_fake_nccl import start_on_fake_nccl
from ..support.programs import Group, Mix, Op, Program, Thread
from ..support.reference import predict
from ..support.reference_nccl import predict_nccl
from ..support.verdicts import Checker, check_many

#: Programs drawn for each number of ranks: this many correct ones, and as many with a fault.
SHARE = 20
SLEEP = programs.SLEEP


# -- the reference itself -----------------------------------------------------------------------


def reduce(name, value=1, group=programs.WORLD):
    return Op("all_reduce", name, group, value=value)


def send(name, peer, kind="send", tag=0):
    return Op(kind, name, peer=peer, tag=tag, value=name)


def recv(name, peer, kind="recv", tag=0):
    return Op(kind, name, peer=peer, tag=tag)


def wait(name):
    return Op("wait", name)


BARRIER, GATHER = Op("barrier", 8), Op("all_gather", 9, value=5)
RAISE = Op("raise")
GROUPS = {"a": Group((0, 1)), "b": Group((0, 1)), programs.BRIEF: Group((0, 1), limit=2.0)}


def start(number):
    return Op("start", number)


def join(number):
    return Op("join", number)


def new(group):
    return Op("new", group=group)


def sleep(seconds):
    return Op("compute", seconds=seconds)


def thread(rank, *ops, executor=False):
    return Thread(rank, ops, executor)


TICK = Op("tick")
BRIEF = programs.BRIEF
LOCAL = {"c": Group((0, 1), local=True), "d": Group((0, 2), local=True)}
LOCAL["e"] = LOCAL["c"]

#: name, what each rank does, its threads, the verdict, who waits forever at which operation, how
#: each thread ends
KNOWN_THREADS = [
    (
        "a thread provides what another rank waits for, its own rank has ended",
        [[start(1)], [reduce(1, 2, "a")], []],
        {1: thread(0, sleep(SLEEP), reduce(1, 1, "a"))},
        ("ended", {}, {1: ("ended", (3,))}),
    ),
    (
        "a rank waits for its own thread",
        [[start(1), join(1), BARRIER], [reduce(1, 2, "a"), BARRIER], [BARRIER]],
        {1: thread(0, sleep(SLEEP), reduce(1, 1, "a"), executor=True)},
        ("ended", {}, {1: ("ended", (3,))}),
    ),
    (
        "two threads meet",
        [[start(1), BARRIER], [start(2), BARRIER, join(2)], [BARRIER]],
        {1: thread(0, reduce(1, 1, "a")), 2: thread(1, reduce(1, 2, "a"), executor=True)},
        ("ended", {}, {1: ("ended", (3,)), 2: ("ended", (3,))}),
    ),
    (
        "a rank waits for its own thread, which waits for a rank that has ended",
        [[start(1), join(1), BARRIER], [], [BARRIER]],
        {1: thread(0, reduce(1, 1, "a"))},
        ("proved", {0: 1, 2: 0}, {1: ("waits", ())}),
    ),
    (
        "a rank waits for its thread before it does what the thread waits for",
        [[start(1), join(1), reduce(2, 1, "b")], [reduce(2, 2, "b"), reduce(1, 2, "a")], []],
        {1: thread(0, reduce(1, 1, "a"))},
        ("proved", {0: 1, 1: 0}, {1: ("waits", ())}),
    ),
    (
        "a thread waits for ever, and nobody for it",
        [[start(1), BARRIER], [BARRIER], [BARRIER]],
        {1: thread(0, reduce(1, 1, "a"))},
        ("ended", {}, {1: ("waits", ())}),
    ),
    (
        "a thread ticks where it could help",
        [[start(1)], [BARRIER], [BARRIER]],
        {1: thread(0, TICK)},
        ("suspected", {1: 0, 2: 0}, {1: ("ticks", ())}),
    ),
    (
        "a thread ticks on a rank that waits for one that has gone",
        [[start(1), reduce(1, 1, "a")], [], []],
        {1: thread(0, TICK)},
        ("proved", {0: 1}, {1: ("ticks", ())}),
    ),
    (
        "a thread ticks on a rank that others wait for, and that waits for them",
        [[start(1), reduce(1, 1, "a")], [reduce(2, 2, "b")], []],
        {1: thread(0, TICK)},
        ("suspected", {0: 1, 1: 0}, {1: ("ticks", ())}),
    ),
    (
        "calls that differ, and a thread that ticks",
        [[start(1), BARRIER], [GATHER], [GATHER]],
        {1: thread(0, TICK)},
        ("proved", {0: 1, 1: 0, 2: 0}, {1: ("ticks", ())}),
    ),
    (
        "a thread ticks where it does not help",
        [[recv(1, 1)], [], [start(1)]],
        {1: thread(2, TICK)},
        ("proved", {0: 0}, {1: ("ticks", ())}),
    ),
    (
        "a thread stops at an error",
        [[start(1), join(1)], [reduce(1, 2, "a")], []],
        {1: thread(0, RAISE, reduce(1, 1, "a"))},
        ("proved", {1: 0}, {1: ("ended", ("ValueError",))}),
    ),
    (
        "members make a group, the third rank does not come",
        [[new("c"), reduce(1, 1, "c")], [sleep(0.02), new("c"), reduce(1, 2, "c")], []],
        {},
        ("ended", {}, {}),
    ),
    (
        "a member never makes the group",
        [[new("c"), reduce(1, 1, "c")], [], []],
        {},
        ("proved", {0: 0}, {}),
    ),
    (
        "members have made different numbers of groups, by which torch names the next",
        [[new("d"), new("c")], [new("c")], [new("d")]],
        {},
        ("proved", {0: 1, 1: 0}, {}),
    ),
    (
        "two groups of the same members have their names by the order in which they are made",
        [[new("c"), new("e"), reduce(1, 1, "c")], [new("e"), new("c"), reduce(1, 2, "e")], []],
        {},
        ("ended", {}, {}),
    ),
    (
        "two groups of the same members, made in another order, do not meet by their variables",
        [[new("c"), new("e"), reduce(1, 1, "c")], [new("e"), new("c"), reduce(1, 2, "c")], []],
        {},
        ("proved", {0: 2, 1: 2}, {}),
    ),
    (
        "a call that nobody meets ends when its time is up",
        [[reduce(1, 1, BRIEF), BARRIER], [BARRIER], [BARRIER]],
        {},
        ("ended", {}, {}),
    ),
    (
        "a call in a thread that nobody meets ends when its time is up",
        [[start(1), join(1), BARRIER], [BARRIER], [BARRIER]],
        {1: thread(0, reduce(1, 1, BRIEF))},
        ("ended", {}, {1: ("ended", ("late",))}),
    ),
    (
        "a thread that wakes up waits in a call with a limit, and two ranks wait for it",
        [[start(1), join(1), send(2, 1)], [recv(2, 0)], []],
        {1: thread(0, sleep(SLEEP), reduce(1, 1, BRIEF))},
        ("ended", {}, {1: ("ended", ("late",))}),
    ),
    (
        "a rank goes on when its time is up, but another has gone",
        [[reduce(1, 1, BRIEF), BARRIER], [], [BARRIER]],
        {},
        ("proved", {0: 1, 2: 0}, {}),
    ),
]


@pytest.mark.parametrize("known", KNOWN_THREADS, ids=lambda known: known[0])
def test_the_reference_knows_threads_groups_and_limits(known):
    _name, ranks, threads, (verdict, waits, ends) = known
    prediction = predict(Program(tuple(map(tuple, ranks)), GROUPS | LOCAL, threads))
    assert prediction.exact
    run = prediction.hopeful
    assert run.verdict == verdict
    assert run.stuck == waits == run.stages[-1].suspected
    assert {number: (end.how, end.got) for number, end in run.threads.items()} == ends
    assert ("late" in run.ends[0].got) == (ranks[0][:1] == [reduce(1, 1, BRIEF)])


def test_the_reference_does_not_decide_what_a_clock_decides():
    ranks = ((reduce(1, 1, BRIEF),), (sleep(1.5), reduce(1, 2, BRIEF)), ())
    assert predict(Program(ranks, GROUPS)).loose
    ranks = ((reduce(1, 1, BRIEF),), (sleep(0.5), reduce(1, 2, BRIEF)), ())
    assert predict(Program(ranks, GROUPS)).exact
    ranks = ((reduce(1, 1, BRIEF),), (sleep(3.5), reduce(1, 2, BRIEF)), ())
    assert predict(Program(ranks, GROUPS)).loose  # gloo has closed its connections


def broadcast(name, root):
    return Op("broadcast", name, root=root, value=name)


def test_the_reference_does_not_say_how_a_broadcast_meets_something_else():
    assert predict(Program(((BARRIER,), (broadcast(1, 0),), (BARRIER,)))).loose
    assert predict(Program(((broadcast(1, 0),), (broadcast(1, 1),), ()))).loose


# -- the reference with the semantics of NCCL ------------------------------------------------------

#: Seconds in which a wrong verdict would come.
LATE = 2.0
GROUPS_WITH_MANNERS = {"a": Group((0, 1)), "b": Group((0, 1)), "c": Group((0, 2))}

#: name, what each rank does, its threads, the verdict, who waits forever at which operation (the
#: one after the last is the end of the cell), what each rank has got
KNOWN_MANNERS = [
    (
        "both send first",
        [[send(1, 1), recv(2, 1)], [send(2, 0), recv(1, 0)], []],
        {},
        ("ended", {}, [(2,), (1,), ()]),
    ),
    (
        "a send that nobody takes",
        [[send(1, 1), sleep(0)], [], []],
        {},
        ("proved", {0: 2}, [(), (), ()]),
    ),
    ("one skips", [[reduce(1)], [], [reduce(1)]], {}, ("proved", {0: 0, 2: 0}, [(), (), ()])),
    (
        "one skips, and nobody looks before the end",
        [[Op("async_all_reduce", 1)], [], [Op("async_all_reduce", 1), sleep(0)]],
        {},
        ("proved", {0: 1, 2: 2}, [(), (), ()]),
    ),
    (
        "what the program has waited for holds back a call in another group",
        [
            [Op("all_reduce", 1, "a", value=1, quiet=True), reduce(2, 1, "b"), Op("look", 1)],
            [reduce(2, 2, "b"), reduce(1, 2, "a")],
            [],
        ],
        {},
        ("proved", {0: 1, 1: 0}, [(), (), ()]),
    ),
    (
        "it does not hold back a call in the same group",
        [
            [Op("all_reduce", 1, "a", value=1, quiet=True), reduce(3, 5, "a"), Op("look", 1)],
            [Op("async_all_reduce", 1, "a", value=2), reduce(3, 6, "a"), wait(1)],
            [],
        ],
        {},
        ("ended", {}, [(11, 3), (11, 3), ()]),
    ),
    (
        "a rank looks at a message that comes late, and a send of it waits for what it does then",
        [
            [send(1, 1, "isend", tag=1), recv(2, 2), send(3, 1, tag=2)],
            [recv(3, 0, tag=2), recv(1, 0, tag=1)],
            [sleep(LATE), send(2, 0)],
        ],
        {},
        ("ended", {}, [(2,), (3, 1), ()]),
    ),
    (
        "a rank looks at a sum that comes late, and another sum waits for what it does then",
        [
            [Op("async_all_reduce", 1, "a", value=1), reduce(2, 1, "c"), send(3, 1), wait(1)],
            [recv(3, 0), reduce(1, 2, "a")],
            [sleep(LATE), reduce(2, 4, "c")],
        ],
        {},
        ("ended", {}, [(5, 3), (3, 3), (5,)]),
    ),
    (
        "an error does not end a cell that has begun something",
        [[Op("async_all_reduce", 1), RAISE], [], []],
        {},
        ("proved", {0: 2}, [(), (), ()]),
    ),
    (
        "what a thread has begun holds the cell back",
        [[start(1), sleep(0.1)], [], []],
        {1: thread(0, Op("async_all_reduce", 1, "a"))},
        ("proved", {0: 2}, [(), (), ()]),
    ),
]


@pytest.mark.parametrize("known", KNOWN_MANNERS, ids=lambda known: known[0])
def test_the_reference_knows_the_semantics_of_nccl(known):
    name, ranks, threads, (verdict, waits, got) = known
    program = Program(tuple(map(tuple, ranks)), GROUPS_WITH_MANNERS, threads)
    prediction = predict_nccl(program)
    assert prediction.exact
    run = prediction.hopeful
    assert (run.verdict, run.stuck, [end.got for end in run.ends]) == (verdict, waits, got)
    assert run.raised == ((0,) if name.startswith("an error") else ())


# -- labkit -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[3, 4])
def lab(request):
    with labkit.start(request.param) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("known", KNOWN_THREADS, ids=lambda known: known[0])
def test_labkit_agrees_with_the_reference_on_threads_groups_and_limits(lab, known):
    last = [op for op in known[1][2] if op.kind not in ("start", "new")]  # these are not its own
    ranks = tuple(map(tuple, [*known[1], *[last] * (len(lab) - 3)]))
    checker = Checker(lab)
    checker.check(Program(ranks, GROUPS | LOCAL, known[2]))
    assert checker.kinds.total() == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [programs.correct, programs.faulty])
def test_no_verdict_is_wrong(lab, strategy, capsys):
    check_many(Checker(lab), strategy, Mix(), SHARE, capsys)


@pytest.fixture(scope="module", params=[3, 4])
def fake_nccl_lab(request):
    with start_on_fake_nccl(request.param) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("known", KNOWN_MANNERS, ids=lambda known: known[0])
def test_labkit_agrees_with_the_reference_on_the_semantics_of_nccl(fake_nccl_lab, known):
    ranks = tuple(map(tuple, [*known[1], *[[]] * (len(fake_nccl_lab) - 3)]))
    checker = Checker(fake_nccl_lab, semantics=True)
    checker.check(Program(ranks, GROUPS_WITH_MANNERS, known[2]))
    assert checker.kinds.total() == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [programs.correct, programs.faulty])
def test_no_verdict_is_wrong_with_the_semantics_of_nccl(fake_nccl_lab, strategy, capsys):
    checker = Checker(fake_nccl_lab, semantics=True)
    check_many(checker, strategy, Mix(limit=0, looks=True), SHARE // 2, capsys)
