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
from ..support.manners import start_with_manners
from ..support.programs import MAIN, Group, Mix, Op, Program, Thread, write
from ..support.reference import End, predict
from ..support.reference_manners import predict_manners
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

#: name, what each rank does, who waits forever at which operation, what each rank has got
KNOWN = [
    ("a sum", [[reduce(1, 1)], [reduce(1, 2)], [reduce(1, 4)]], {}, [(7,), (7,), (7,)]),
    ("one skips", [[reduce(1)], [], [reduce(1)]], {0: 0, 2: 0}, [(), (), ()]),
    (
        "one calls less often",
        [[reduce(1, 1), reduce(2, 10)], [reduce(1, 2)], [reduce(1, 3), reduce(2, 30)]],
        {0: 1, 2: 1},
        [(6,), (6,), (6,)],
    ),
    ("a message", [[send(3, 1)], [recv(3, 0)], []], {}, [(), (3,), ()]),
    (
        "both send first",
        [[send(1, 1), recv(2, 1)], [send(2, 0), recv(1, 0)], []],
        {0: 0, 1: 0},
        [(), (), ()],
    ),
    (
        "both send first, one at once",
        [[send(1, 1, "isend"), recv(2, 1), wait(1)], [send(2, 0), recv(1, 0)], []],
        {},
        [(2,), (1,), ()],
    ),
    (
        "other tags",
        [[send(1, 1, tag=1)], [recv(1, 0, tag=2)], [BARRIER]],
        {0: 0, 1: 0, 2: 0},
        [(), (), ()],
    ),
    (
        "messages of one tag in their order",
        [
            [send(1, 1, "isend"), send(2, 1, "isend"), wait(2), wait(1)],
            [recv(1, 0, "irecv"), recv(2, 0, "irecv"), wait(2), wait(1)],
            [],
        ],
        {},
        [(), (2, 1), ()],
    ),
    (
        "a later wait",
        [
            [Op("async_all_reduce", 1, value=1), recv(2, 1), wait(1)],
            [send(2, 0), reduce(1, 2)],
            [reduce(1, 3)],
        ],
        {},
        [(2, 6), (6,), (6,)],
    ),
    (
        "different calls",
        [[BARRIER, GATHER], [GATHER, BARRIER], [BARRIER, GATHER]],
        {0: 0, 1: 0, 2: 0},
        [(), (), ()],
    ),
    ("an error", [[RAISE, BARRIER], [BARRIER], []], {1: 0}, [(), (), ()]),
    (
        "two groups in different order",
        [
            [reduce(1, group="a"), reduce(2, group="b")],
            [reduce(2, group="b"), reduce(1, group="a")],
            [],
        ],
        {0: 0, 1: 0},
        [(), (), ()],
    ),
    (
        "a wait in one group while another is under way",
        [[Op("async_all_reduce", 1, "b"), Op("barrier", 2, "a")], [], []],
        {0: 1},
        [(), (), ()],
    ),
]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known[0])
def test_the_reference_knows_the_answer(known):
    name, ranks, waits, got = known
    prediction = predict(Program(tuple(map(tuple, ranks)), GROUPS))
    assert prediction.exact
    assert prediction.hopeful.stuck == waits
    assert prediction.hopeful.verdict == ("proved" if waits else "ended")
    assert prediction.hopeful.stages[-1].proved == waits
    assert [end.got for end in prediction.hopeful.ends] == got
    assert prediction.hopeful.raised == ((0,) if name == "an error" else ())


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


def test_the_reference_knows_what_is_suspected_and_goes_on():
    ranks = ((start(1),), (reduce(1, 2, "a"),), ())
    run = predict(Program(ranks, GROUPS, {1: thread(0, sleep(1.5), reduce(1, 1, "a"))})).hopeful
    assert [(s.time, s.proved, s.suspected) for s in run.stages] == [
        (0.0, {}, {1: 0}),
        (1.5, {}, {}),
    ]
    assert run.suspicion == 1.5
    assert run.ends[1] == End("ended", (3,))


def test_the_reference_proves_only_what_no_sleeping_thread_can_change():
    # Ranks 1 and 2 wait for one another; rank 0 waits for its thread, then for rank 1.
    ranks = ((start(1), join(1), BARRIER), (recv(1, 2),), (recv(2, 1),))
    run = predict(Program(ranks, GROUPS, {1: thread(0, sleep(1.0))})).hopeful
    assert [(s.proved, s.suspected) for s in run.stages] == [
        ({1: 0, 2: 0}, {0: 1, 1: 0, 2: 0}),
        ({0: 2, 1: 0, 2: 0}, {0: 2, 1: 0, 2: 0}),
    ]


def test_the_reference_does_not_decide_what_a_clock_decides():
    ranks = ((reduce(1, 1, BRIEF),), (sleep(1.5), reduce(1, 2, BRIEF)), ())
    assert predict(Program(ranks, GROUPS)).loose
    ranks = ((reduce(1, 1, BRIEF),), (sleep(0.5), reduce(1, 2, BRIEF)), ())
    assert predict(Program(ranks, GROUPS)).exact
    ranks = ((reduce(1, 1, BRIEF),), (sleep(3.5), reduce(1, 2, BRIEF)), ())
    assert predict(Program(ranks, GROUPS)).loose  # gloo has closed its connections


def broadcast(name, root):
    return Op("broadcast", name, root=root, value=name)


def test_the_reference_gives_bounds_for_a_broadcast_that_a_receiver_skips():
    prediction = predict(Program(((broadcast(1, 0),), (broadcast(1, 0),), ())))
    assert not prediction.exact
    assert not prediction.loose
    assert prediction.hopeful.stuck == {}
    assert prediction.fearful.stuck == {0: 0, 1: 0}


def test_the_reference_draws_for_each_rank_whether_a_broadcast_lets_it_go():
    # Rank 0 is through and looks after its thread; rank 1, the source, is not.
    ranks = ((broadcast(1, 1), start(1), join(1)), (broadcast(1, 1),), (reduce(2, group="d"),))
    groups = {"d": Group((1, 2))}
    prediction = predict(Program(ranks, groups, {1: thread(0, sleep(SLEEP))}))
    proved = [set(stage.proved) for stage in prediction.stages]
    assert {2} in proved
    assert {1, 2} in proved
    assert {0, 1, 2} in proved


def test_the_reference_is_sure_of_a_broadcast_that_its_source_skips():
    prediction = predict(Program(((), (broadcast(1, 0),), (broadcast(1, 0),))))
    assert prediction.exact
    assert prediction.hopeful.stuck == {1: 0, 2: 0}


def test_the_reference_does_not_say_how_a_broadcast_meets_something_else():
    assert predict(Program(((BARRIER,), (broadcast(1, 0),), (BARRIER,)))).loose
    assert predict(Program(((broadcast(1, 0),), (broadcast(1, 1),), ()))).loose


def test_each_operation_has_its_line():
    ranks = ((reduce(1), BARRIER, start(1), join(1)), (), (send(3, 1, "isend"), wait(3)))
    late = Op("barrier", 4, BRIEF)
    groups = {"first": Group((0, 1)), BRIEF: Group((0, 1), limit=2.0)}
    program = Program(ranks, groups, {1: thread(0, late, executor=True)})
    code, places = write(program)
    lines = code.splitlines()
    calls = {place: lines[number - 1].strip() for place, number in places.items()}
    assert calls == {
        (0, MAIN, 0): "dist.all_reduce(x1)",
        (0, MAIN, 1): "dist.barrier()",
        (0, MAIN, 2): "threads.append(pool1.submit(thread1))",
        (0, MAIN, 3): "task1.result()",
        (0, 1, 0): "dist.barrier(group=brief)",
        (2, MAIN, 0): "work3 = dist.isend(x3, 1)",
        (2, MAIN, 1): "work3.wait()",
    }
    compile(code, "a cell", "exec")


# -- the reference with the manners of NCCL ------------------------------------------------------

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
def test_the_reference_knows_the_manners_of_nccl(known):
    name, ranks, threads, (verdict, waits, got) = known
    program = Program(tuple(map(tuple, ranks)), GROUPS_WITH_MANNERS, threads)
    prediction = predict_manners(program)
    assert prediction.exact
    run = prediction.hopeful
    assert (run.verdict, run.stuck, [end.got for end in run.ends]) == (verdict, waits, got)
    assert run.raised == ((0,) if name.startswith("an error") else ())


def test_the_reference_does_not_say_which_of_two_threads_is_first():
    # If the barrier is issued first, the thread's call waits for it, and rank 1 for that call.
    ranks = ((start(1), BARRIER), (reduce(1, 2, "a"), BARRIER))
    program = Program(ranks, {"a": Group((0, 1))}, {1: thread(0, reduce(1, 1, "a"))})
    assert predict(program).exact
    assert predict_manners(program).loose


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
def lab_with_manners(request):
    with start_with_manners(request.param) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("known", KNOWN_MANNERS, ids=lambda known: known[0])
def test_labkit_agrees_with_the_reference_on_the_manners_of_nccl(lab_with_manners, known):
    ranks = tuple(map(tuple, [*known[1], *[[]] * (len(lab_with_manners) - 3)]))
    checker = Checker(lab_with_manners, manners=True)
    checker.check(Program(ranks, GROUPS_WITH_MANNERS, known[2]))
    assert checker.kinds.total() == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [programs.correct, programs.faulty])
def test_no_verdict_is_wrong_with_the_manners_of_nccl(lab_with_manners, strategy, capsys):
    checker = Checker(lab_with_manners, manners=True)
    check_many(checker, strategy, Mix(limit=0, looks=True), SHARE // 2, capsys)
