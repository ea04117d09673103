"""Run random programs whose end is known beforehand: no wrong verdict, no hang.

``programs`` draws them and works out how each ends. Half of them are correct, half have one fault.
hypothesis makes a failing one smaller and prints its cell.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import labkit
from labkit import Deadlock, RankDied, RankError
from tests.support.cells import finish_cell, inside, send_cell

from ..support import programs
from ..support.programs import Op, Program, predict, stuck, write

#: Programs drawn for each number of ranks: this many correct ones, and as many with a fault.
COUNT = 75
#: Of the faulty ones, at least this many must have one known end.
EXACT = 45
#: From the start of a program to its verdict, with the ranks freed and in a group again.
SECONDS = 15.0
#: After this long a program hangs.
HANG_SECONDS = 20
#: For making a failing program smaller.
SHRINK_SECONDS = 60
#: Sub-groups pile up on the ranks: after so many programs the lab begins anew.
RESET = 25


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

#: name, what each rank does, who waits for ever at which operation, what each rank has got
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
    program = Program(tuple(map(tuple, ranks)), {"a": (0, 1), "b": (0, 1)})
    prediction = predict(program)
    assert prediction.exact
    assert stuck(prediction.hopeful) == waits
    assert [end.got for end in prediction.hopeful] == got
    raised = [rank for rank, end in enumerate(prediction.hopeful) if end.how == "raised"]
    assert raised == ([0] if name == "an error" else [])


def broadcast(name, root):
    return Op("broadcast", name, root=root, value=name)


def test_the_reference_gives_bounds_for_a_broadcast_that_a_receiver_skips():
    prediction = predict(Program(((broadcast(1, 0),), (broadcast(1, 0),), ())))
    assert not prediction.exact
    assert not prediction.loose
    assert stuck(prediction.hopeful) == {}
    assert stuck(prediction.fearful) == {0: 0, 1: 0}


def test_the_reference_is_sure_of_a_broadcast_that_its_source_skips():
    prediction = predict(Program(((), (broadcast(1, 0),), (broadcast(1, 0),))))
    assert prediction.exact
    assert stuck(prediction.hopeful) == {1: 0, 2: 0}


def test_the_reference_does_not_say_how_a_broadcast_meets_something_else():
    assert predict(Program(((BARRIER,), (broadcast(1, 0),), (BARRIER,)))).loose
    assert predict(Program(((broadcast(1, 0),), (broadcast(1, 1),), ()))).loose


def test_each_operation_has_its_line():
    ranks = ((reduce(1), BARRIER), (), (send(3, 1, "isend"), wait(3)))
    code, places = write(Program(ranks, {"first": (0, 1)}))
    lines = code.splitlines()
    calls = {place: lines[number - 1].strip() for place, number in places.items()}
    assert calls == {
        (0, 0): "dist.all_reduce(x1)",
        (0, 1): "dist.barrier()",
        (2, 0): "work3 = dist.isend(x3, 1)",
        (2, 1): "work3.wait()",
    }
    compile(code, "a cell", "exec")


# -- the lab ------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[3, 4])
def lab(request):
    with labkit.start(request.param) as started:
        yield started


@dataclasses.dataclass
class Verdict:
    """What labkit made of a program."""

    error: RankError | None
    case: object  #: of the deadlock, None if there was none
    still: list[int]  #: ranks that did not return
    got: list[tuple[object, ...]]  #: by rank
    seconds: float


@contextlib.contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """Interrupt what takes too long, as a learner would."""

    def ring(signum, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    except KeyboardInterrupt:
        raise AssertionError(f"it hangs: no verdict within {seconds} s") from None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(lab, code) -> Verdict:
    start = time.monotonic()
    with alarm(HANG_SECONDS):
        finished = finish_cell(send_cell(lab, code))
    seconds = time.monotonic() - start
    got = [] if inside(lab).cluster.deaths else [tuple(values) for values in lab["got"]]
    return Verdict(finished.error, finished.ending.case, list(finished.ending.still), got, seconds)


def usable(lab):
    """Check that the ranks are in step and in one group."""
    code = "x = torch.tensor([rank + 1])\ndist.all_reduce(x)\ngot = [x.item()]\n"
    verdict = run(lab, f"#px In[8]\n{code}")
    n = len(lab)
    assert verdict.error is None, f"the lab is not usable afterwards: {verdict.error}"
    assert verdict.got == [(n * (n + 1) // 2,)] * n, "the lab is out of step afterwards"


# -- the verdicts -------------------------------------------------------------------------------


def judge(program: Program, prediction, verdict: Verdict, places) -> str:
    """Compare a verdict with what the reference says; return the kind of program."""
    assert verdict.seconds < SECONDS, f"it took {verdict.seconds:.1f} s"
    assert not verdict.still, f"ranks {verdict.still} did not return"
    if prediction.loose:
        assert verdict.error is None or isinstance(verdict.error, RankError)
        return "loose"
    surely, perhaps = stuck(prediction.hopeful), stuck(prediction.fearful)
    waits = {} if verdict.case is None else verdict.case.waits
    raised = [rank for rank, end in enumerate(prediction.hopeful) if end.how == "raised"]
    if not prediction.exact:
        assert surely.keys() <= waits.keys() <= perhaps.keys(), f"{sorted(waits)} are stuck"
        assert not surely or verdict.error is not None
        return "bounds"
    # The error, then who is stuck, where, in what.
    expected = RankError if raised else Deadlock if surely else None
    actual = None if verdict.error is None else type(verdict.error)
    assert actual is expected, f"{expected} is right, not {actual}"
    if raised:
        assert str(verdict.error).startswith(f"rank {raised[0]}: ValueError: planted")
    assert waits.keys() == surely.keys(), f"{sorted(surely)} are stuck, not {sorted(waits)}"
    for rank, index in surely.items():
        line = f"In[7], line {places[rank, index]}"
        assert waits[rank].where == line, f"rank {rank} waits in {line}, not {waits[rank].where}"
        compare(program, rank, index, waits[rank], verdict.case.entry(rank))
    assert verdict.got == [end.got for end in prediction.hopeful], "the results are wrong"
    return "stuck" if surely else "raised" if raised else "ended"


def compare(program: Program, rank: int, index: int, found, entry):
    """Compare what a rank waits for."""
    op = program.ranks[rank][index]
    if op.kind == "wait":
        name = op.name
        op = next(o for o in program.ranks[rank] if o.name == name and o.kind in programs.STARTS)
    if op.kind in programs.COLLECTIVES:
        assert found.kind == "collective"
        assert entry.name == op.kind.removeprefix("async_")
    else:
        assert (found.kind, found.peer, found.tag) == (op.kind.removeprefix("i"), op.peer, op.tag)


def describe(prediction, verdict: Verdict | None) -> str:
    """Put side by side what the reference and labkit say."""
    lines = ["The reference says:", *(f"  {end}" for end in prediction.hopeful)]
    if prediction.loose:
        lines.append("  (or anything else: a broadcast meets something else)")
    elif not prediction.exact:
        lines += ["  or", *(f"  {end}" for end in prediction.fearful)]
    if verdict is not None:
        lines += ["labkit says:", f"  {verdict.error or 'no error'}", f"  {verdict.got}"]
        samples = {} if verdict.case is None else verdict.case.situation.samples
        for rank, s in samples.items():
            lines.append(f"  rank {rank}: {s.state}, still: {s.still}, {s.stamp}, {s.wait}")
    return "\n".join(lines)


class Checker:
    """Run programs one after another on one lab.

    A failing one is run once: hypothesis gets the same answer when it asks again, and everything
    else passes once ``SHRINK_SECONDS`` are over.
    """

    def __init__(self, lab) -> None:
        self.lab = lab
        self.kinds: Counter[str] = Counter()
        self.failures: dict[str, AssertionError] = {}
        self.deadline = float("inf")
        self.clean = False

    def check(self, program: Program) -> None:
        code, places = write(program)
        if code in self.failures:
            raise self.failures[code]
        if time.monotonic() > self.deadline:
            return
        prediction = predict(program)
        if self.kinds.total() % RESET == 0:
            self.lab.reset()
        verdict = None
        try:
            verdict = run(self.lab, code)
            self.kinds[judge(program, prediction, verdict, places)] += 1
            self.after(prediction, verdict)
        except (AssertionError, labkit.LabError, RankError) as error:
            text = f"{error}\n{program}\n{describe(prediction, verdict)}"
            self.failures[code] = AssertionError(text)
            self.deadline = min(self.deadline, time.monotonic() + SHRINK_SECONDS)
            self.lab.restart()
            raise self.failures[code] from error

    def after(self, prediction, verdict: Verdict) -> None:
        """Check that the lab works."""
        if dead := sorted(inside(self.lab).cluster.deaths):
            assert isinstance(verdict.error, RankDied)
            self.lab.restart(ranks=dead)
        elif verdict.error is None:
            if prediction.exact:
                return  # the next program shows it
            self.lab.reset()  # the ranks may be out of step without an error, by their own doing
        usable(self.lab)


@pytest.mark.slow
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known[0])
def test_labkit_agrees_with_the_reference(lab, known):
    ranks = [*map(tuple, known[1]), ()][: len(lab)]
    checker = Checker(lab)
    checker.check(Program(tuple(ranks), {"a": (0, 1), "b": (0, 1)}))
    assert checker.kinds.total() == 1


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [programs.correct, programs.faulty])
def test_no_verdict_is_wrong(lab, strategy, capsys):
    checker = Checker(lab)

    @settings(
        max_examples=COUNT,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy(len(lab)))
    def check(program):
        checker.check(program)

    start = time.monotonic()
    check()
    usable(lab)
    kinds = checker.kinds
    with capsys.disabled():
        print(f"\n{len(lab)} ranks, {strategy.__name__}: {dict(kinds)}", end=" ")
        print(f"in {time.monotonic() - start:.0f} s")
    assert kinds.total() == COUNT
    if strategy is programs.correct:
        assert set(kinds) == {"ended"}
    else:
        assert COUNT - kinds["loose"] - kinds["bounds"] >= EXACT
        assert kinds["stuck"] >= EXACT / 2
