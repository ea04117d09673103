"""Run random programs on a lab and compare labkit's verdicts with what the reference says."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

import labkit
from labkit import Deadlock, RankDied, RankError

from . import programs
from .cells import finish_cell, inside, send_cell
from .programs import MAIN, Mix, Place, Program, write
from .reference import Prediction, Run, predict
from .reference_nccl import predict_nccl
from .stacks import blocked_ranks

#: So many programs of each kind, instead of the share that each test runs.
VARIABLE = "LABKIT_PROGRAMS"
#: Draws others than those that each test runs: a number.
SEED = "LABKIT_PROGRAMS_SEED"
#: Seconds that a suspicion may last; of those that come to nothing, the reference drops any that
#: lasts so long that a busy machine could make the difference.
SUSPECT_SECONDS = 2.0
UNFOUNDED_SECONDS = SUSPECT_SECONDS - 0.5
#: For making a failing program smaller.
SHRINK_SECONDS = 60
#: Sub-groups pile up on the ranks: after so many programs the lab begins anew.
RESET = 25

#: Ends the threads of a program: those that tick at once, the others when they have done all. They
#: tell by themselves: in Python 3.11 a thread whose ``join`` was interrupted counts as ended.
CLEAN_UP = """#px In[9]
over.set()
end = time.monotonic() + {seconds}
while len(gone) < len(threads) and time.monotonic() < end:
    time.sleep(0.01)
left = len(threads) - len(gone)
made = {made}[rank]
for _ in range({most} - made):
    dist.new_group([rank], use_local_synchronization=True)  # torch names them by their number
"""


@dataclass(frozen=True)
class Bounds:
    """What a verdict may take."""

    hang: int = 120  #: seconds: then it hangs
    #: data is on its way for so long that a deadlock is declared before all ranks are sure of it
    slow: bool = False


@dataclass
class Verdict:
    """What labkit made of a program."""

    error: BaseException | None
    kind: str  #: of the ending
    case: Any  #: of the deadlock, None if there was none
    still: list[int]  #: ranks that did not return
    got: list[tuple[object, ...]]  #: by rank
    seconds: float


def count(share: int) -> int:
    """Return how many programs a test draws: its share, or what the variable says."""
    return int(os.environ.get(VARIABLE) or share)


@contextlib.contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """Interrupt what takes too long, as a learner would."""

    def ring(signum: int, frame: object) -> None:
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


def run(lab: labkit.Lab, code: str, hang: int) -> Verdict:
    """Run a cell; what went wrong is in the verdict."""
    start = time.monotonic()
    with alarm(hang):
        finished = finish_cell(send_cell(lab, code), suspect=SUSPECT_SECONDS)
    seconds = time.monotonic() - start
    ending = finished.ending
    got = [] if inside(lab).cluster.deaths else [tuple(values) for values in lab["got"]]
    return Verdict(finished.error, ending.kind, ending.case, list(ending.still), got, seconds)


# -- the verdicts -------------------------------------------------------------------------------


def judge(
    program: Program, prediction: Prediction, verdict: Verdict, places: dict[Place, int] | None,
    bounds: Bounds,
) -> str:  # fmt: skip
    """Compare a verdict with what the reference says; return the kind of program.

    ``places`` has the lines at which ranks may wait; with None only the ranks are compared.
    """
    assert not verdict.still, f"ranks {verdict.still} did not return"
    assert verdict.kind in ("", "deadlock", "suspected"), f"the ending is {verdict.kind!r}"
    if prediction.loose:
        assert verdict.error is None or isinstance(verdict.error, RankError)
        return "loose"
    sure, perhaps = prediction.hopeful, prediction.fearful
    waits = {} if verdict.case is None else verdict.case.waits
    if not prediction.exact:
        known = [s.proved for s in prediction.stages] + [s.suspected for s in prediction.stages]
        both = sure.stuck.keys() & perhaps.stuck.keys()
        some = bounds.slow and verdict.kind == "deadlock" and waits.keys() <= both
        assert any(waits.keys() == k.keys() for k in known) or (
            some or sure.stuck.keys() <= waits.keys() <= perhaps.stuck.keys()
        ), f"{sorted(waits)} are stuck"
        assert not sure.stuck or verdict.error is not None
        return "bounds"
    if prediction.suspicion > UNFOUNDED_SECONDS and verdict.kind == "suspected":
        return "early"  # one that comes to nothing, but late
    return _judge_exact(program, sure, prediction, verdict, places, bounds)


def _judge_exact(
    program: Program, sure: Run, prediction: Prediction, verdict: Verdict,
    places: dict[Place, int] | None, bounds: Bounds,
) -> str:  # fmt: skip
    right = {"ended": "", "proved": "deadlock"}.get(sure.verdict, sure.verdict)
    assert verdict.kind == right, f"{right!r} is right, not {verdict.kind!r}"
    # The error, then who is stuck, where, in what.
    raised = set(sure.raised)
    early = {r for s in prediction.stages[:1] for r in s.raised}
    if right:
        assert verdict.case is not None
        waits, doubts = verdict.case.waits, verdict.case.doubts
        assert bool(doubts) == (right == "suspected"), f"the doubts are {doubts}"
        sets = [s.proved if right == "deadlock" else s.suspected for s in prediction.stages]
        if bounds.slow and right == "deadlock":  # the others were out of reach
            sets += [{r: s[r] for r in waits} for s in sets if s.keys() > waits.keys()]
        found = [s for s in sets if s and s.keys() == waits.keys()]
        final = sets[-1]
        assert found, f"{sorted(final)} are stuck, not {sorted(waits)}"
        if places is not None:
            wrong = [_mismatches(program, stage, verdict.case, places) for stage in found]
            assert not all(wrong), wrong[0]
    whole = not right or verdict.case.waits.keys() == sure.stuck.keys()
    expected = {"": type(None), "deadlock": Deadlock, "suspected": labkit.SuspectedDeadlock}[right]
    actual = type(verdict.error)
    if raised:
        assert actual is RankError or (actual is expected and right and not early), actual
        if actual is RankError:
            starts = tuple(f"rank {rank}: ValueError: planted" for rank in sorted(raised))
            assert str(verdict.error).startswith(starts)
    else:
        assert actual is expected, f"{expected} is right, not {actual}"
    ends, gots = [end.got for end in sure.ends], list(verdict.got)
    for rank in verdict.case.waits if right else ():
        if _joins(program, rank, found):  # its thread was freed, so it went on to what it had
            gots[rank] = gots[rank][: len(ends[rank])]
    if whole and len(prediction.hopeful.stages) == 1:
        assert gots == ends, "the results are wrong"
    for rank, (got, end) in enumerate(zip(gots, ends, strict=True)):
        ended = not right or rank in verdict.case.waits
        assert got == end if ended else got == end[: len(got)], f"rank {rank} has wrong results"
    return sure.verdict if right else "raised" if raised else "ended"


def _joins(program: Program, rank: int, stages: list[dict[int, int]]) -> bool:
    """Return whether a rank waits for a thread of its own, in one of some stages."""
    ops = program.ranks[rank]
    places = (stage[rank] for stage in stages if rank in stage)
    return any(i < len(ops) and ops[i].kind == "join" for i in places)


def _mismatches(
    program: Program, stage: dict[int, int], case: Any, places: dict[Place, int]
) -> list[str]:
    """Return which ranks wait elsewhere, or for something else, than in a stage of the program."""
    told = (
        _mismatch(program, rank, index, case.waits[rank], case.entry(rank), places)
        for rank, index in stage.items()
    )
    return [text for text in told if text]


def _mismatch(
    program: Program, rank: int, index: int, found: Any, entry: Any, places: dict[Place, int]
) -> str:
    """Compare where a rank waits, and for what: itself, or a thread that it waits for."""
    ops = program.ranks[rank]
    op = ops[index]
    lines = [f"In[7], line {places[rank, MAIN, index]}"]
    if op.kind == "join":
        lines += [f"In[7], line {line}" for p, line in places.items() if p[:2] == (rank, op.name)]
    if found.where not in lines:
        return f"rank {rank} waits in {lines[0]}, not {found.where}"
    if op.kind == "wait":
        op = next(o for o in ops if o.name == op.name and o.kind in programs.STARTS)
    if op.kind == "join":
        return ""
    if op.kind == "new":
        fits = found.kind == "new_group"
    elif op.kind in programs.COLLECTIVES:
        fits = found.kind == "collective" and entry.name == op.kind.removeprefix("async_")
    else:
        ends = (op.kind.removeprefix("i"), op.peer, op.tag)
        fits = (found.kind, found.peer, found.tag) == ends
    return "" if fits else f"rank {rank} waits in {op}, not {found}"


def describe(prediction: Prediction, verdict: Verdict | None) -> str:
    """Put side by side what the reference and labkit say."""
    sure, perhaps = prediction.hopeful, prediction.fearful
    lines = ["The reference says:", *_told(sure)]
    if prediction.loose:
        lines.append("  (or anything else: a broadcast meets something else, or a clock decides)")
    elif not prediction.exact:
        lines += ["  or", *_told(perhaps)]
    if verdict is not None:
        lines += ["labkit says:", f"  {verdict.kind!r}", f"  {verdict.error or 'no error'}"]
        lines.append(f"  {verdict.got} after {verdict.seconds:.1f} s")
        if verdict.case is not None:
            lines.append(f"  doubts: {getattr(verdict.case, 'doubts', None)}")
            for rank, s in verdict.case.situation.samples.items():
                lines.append(f"  rank {rank}: {s}")
    return "\n".join(lines)


def _told(found: Run) -> list[str]:
    threads = [f"  thread {number}: {end}" for number, end in found.threads.items()]
    return [*(f"  {end}" for end in found.ends), *threads, *(f"  {s}" for s in found.stages)]


# -- many of them -------------------------------------------------------------------------------


class Checker:
    """Run programs one after another on one lab.

    A failing one is run once: hypothesis gets the same answer when it asks again, and everything
    else passes once ``SHRINK_SECONDS`` are over.
    """

    def __init__(
        self, lab: labkit.Lab, bounds: Bounds = Bounds(), *, semantics: bool = False
    ) -> None:
        self.lab, self.bounds, self.semantics = lab, bounds, semantics
        self.kinds: Counter[str] = Counter()
        self.failures: dict[str, AssertionError] = {}
        self.deadline = float("inf")

    def predict(self, program: Program) -> Prediction:
        return predict_nccl(program) if self.semantics else predict(program)

    def ends(self, program: Program) -> bool:
        """Return whether a program ends for sure, and nobody could suspect for long that it does
        not.

        With NCCL's semantics, threads can bring a program to a halt that is correct with gloo.
        """
        found = self.predict(program)
        sure = found.exact and found.hopeful.verdict == "ended"
        return sure and found.suspicion <= UNFOUNDED_SECONDS

    def check(self, program: Program) -> None:
        code, places = write(program)
        if code in self.failures:
            raise self.failures[code]
        if time.monotonic() > self.deadline:
            return
        prediction = self.predict(program)
        if self.kinds.total() % RESET == 0:
            self.lab.reset()
        verdict = None
        try:
            verdict = run(self.lab, code, self.bounds.hang)
            where = None if self.semantics else places
            self.kinds[judge(program, prediction, verdict, where, self.bounds)] += 1
            self.after(program, prediction, verdict)
        except (AssertionError, labkit.LabError, RankError) as error:
            text = f"{error}\n{program}\n{describe(prediction, verdict)}\n{blocked_ranks()}"
            self.failures[code] = AssertionError(text)
            self.deadline = min(self.deadline, time.monotonic() + SHRINK_SECONDS)
            self.lab.restart()
            raise self.failures[code] from error

    def after(self, program: Program, prediction: Prediction, verdict: Verdict) -> None:
        """Check what threads have come to, and that the lab works."""
        if dead := sorted(inside(self.lab).cluster.deaths):
            assert isinstance(verdict.error, RankDied)
            self.lab.restart(ranks=dead)
        elif verdict.error is None and prediction.exact:
            self.threads_end(program, prediction.hopeful)
            return  # the next program shows whether the lab works
        else:
            if verdict.error is None or any(g.local for g in program.groups.values()):
                # The ranks may be out of step by their own doing, and torch names the groups that
                # members make by how many each has made.
                self.lab.reset()
            self.stop_threads(program)
        self.usable()

    def threads_end(self, program: Program, found: Run) -> None:
        """Wait for the threads that end by themselves; compare what they have come to."""
        if any(end.how == "waits" for end in found.threads.values()):
            self.lab.reset()  # they wait forever, which is no fault: the cell has ended
            self.stop_threads(program)
            return
        made = [sum(op.kind == "new" for op in ops) for ops in program.ranks]
        if found.threads or any(made):
            code = CLEAN_UP.format(made=made, most=max(made), seconds=20)
            cleaned = run(self.lab, code, self.bounds.hang)
            assert cleaned.error is None, f"threads cannot be waited for: {cleaned.error}"
            assert not any(self.lab["left"]), f"threads do not end: {self.lab['left']}"
        notes = self.lab["notes"] if found.threads else []
        for number, end in found.threads.items():
            got = notes[program.threads[number].rank].get(number)
            assert got == list(end.got), f"thread {number} has {got}, not {list(end.got)}"

    def stop_threads(self, program: Program) -> None:
        """End the threads that are left."""
        if not program.threads:
            return
        code = CLEAN_UP.format(made=[0] * program.size, most=0, seconds=3)
        cleaned = run(self.lab, code, self.bounds.hang)
        if cleaned.error or any(self.lab["left"]):
            self.lab.restart()

    def usable(self) -> None:
        """Check that the ranks are in step and in one group."""
        code = "x = torch.tensor([rank + 1])\ndist.all_reduce(x)\ngot = [x.item()]\n"
        verdict = run(self.lab, f"#px In[8]\n{code}", self.bounds.hang)
        n = len(self.lab)
        assert verdict.error is None, f"the lab is not usable afterwards: {verdict.error}"
        assert verdict.got == [(n * (n + 1) // 2,)] * n, "the lab is out of step afterwards"


def check_many(
    checker: Checker,
    strategy: Callable[..., Any],
    mix: Mix,
    share: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Draw programs and run them; fail at a wrong verdict, with the smallest program found."""
    number, size = count(share), len(checker.lab)
    drawn = strategy(size, mix)
    if strategy is programs.correct:
        drawn = drawn.filter(checker.ends)
    elif checker.semantics:  # two threads of a rank whose order decides are too common there
        drawn = drawn.filter(lambda program: not checker.predict(program).loose)

    @settings(
        max_examples=number,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def check(program: Program) -> None:
        checker.check(program)

    if number_of_draw := os.environ.get(SEED):
        check = seed(int(number_of_draw))(check)
    start = time.monotonic()
    check()
    checker.usable()
    kinds = checker.kinds
    with capsys.disabled():
        print(f"\n{size} ranks, {strategy.__name__}: {dict(kinds)}", end=" ")
        print(f"in {time.monotonic() - start:.0f} s")
    assert kinds.total() == number
    if strategy is programs.correct:
        assert set(kinds) <= {"ended"}
    else:
        assert kinds["loose"] + kinds["bounds"] + kinds["early"] <= 0.4 * number
        assert kinds["proved"] + kinds["suspected"] >= 0.3 * number
