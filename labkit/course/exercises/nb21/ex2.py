"""Exercise 21-2: predict the time of a training step from the prices of its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Any

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, rank_simulated, simulated
from ...slips import Formula


@dataclass(frozen=True)
class Case:
    """A step: what it computes (of the fastest rank), what it sends, and what is asked for."""

    fixed: float
    slope: float
    size: int
    buckets: int
    alpha: float
    beta: float
    rows: int

    def factor(self, rank: int, n: int) -> float:
        """Return how many times as long this rank computes as the fastest one."""
        return 2.0 if rank == n // 2 else 1.25 if rank == n - 1 else 1.0

    def times(self, rank: int, n: int) -> dict[int, float]:
        """Return what this rank has measured, for two numbers of rows."""
        factor = self.factor(rank, n)
        return {rows: factor * (self.fixed + self.slope * rows) for rows in (16, 64)}


#: By turns computing hides all buckets but the last one, nothing can be hidden, the network is the
#: bottleneck, and sending nearly begins with the backward pass.
CASES = (
    Case(0.5, 0.1875, 8, 4, 0.25, 0.5, rows=96),
    Case(0.25, 0.0625, 64, 1, 1.0, 0.125, rows=8),
    Case(1.0, 0.09375, 1024, 8, 0.25, 0.0625, rows=128),
    Case(2.0, 0.046875, 256, 4, 2.0, 0.125, rows=16),
)


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [
        answer(c.times(here.rank, here.world_size), c.size, c.buckets, c.alpha, c.beta, c.rows)
        for c in CASES
    ]


def labels(n: int) -> list[str]:
    return [
        f"predict_step(times, {c.size}, {c.buckets}, {c.alpha:g}, {c.beta:g}, {c.rows})"
        for c in CASES
    ]


#: Given a case, the part of compute that does not depend on the rows, and the backward pass: the
#: seconds that communication adds.
Visible = Callable[[Case, float, float], float]


def visible(case: Case, fixed: float, backward: float) -> float:
    """Return the seconds from the end of the backward pass to that of the last all-reduce."""
    n, call = case.buckets, case.alpha + case.beta * case.size / case.buckets
    return max(call, n * call - backward * (n - 1) / n)


def _step(
    case: Case, rank: int, n: int, *, share: float = 2 / 3, added: Visible = visible,
    whole: bool = False, proportional: bool = False,
) -> float:  # fmt: skip
    factor = case.factor(rank, n)
    fixed, computing = factor * case.fixed, factor * case.slope * case.rows
    compute = fixed + computing
    if proportional:
        compute = case.times(rank, n)[16] / 16 * case.rows
        computing = compute
    backward = share * (compute if whole else computing)
    return compute + added(case, fixed, backward)


def _steps(n: int, of: Callable[[list[float]], float] = max, **change: Any) -> list[float]:
    return [of([_step(case, rank, n, **change) for rank in range(n)]) for case in CASES]


def expected(n: int) -> list[list[float]]:
    return [_steps(n)] * n


def _gives(of: Callable[[list[float]], float] = max, **change: Any) -> Predicate:
    """Return the predicate of what an answer makes of the ranks' steps, which it may change."""
    return simulated(lambda n: [_steps(n, of, **change)] * n)


def _one_alpha(case: Case, fixed: float, backward: float) -> float:
    n, comm = case.buckets, case.alpha + case.beta * case.size
    return max(comm / n, comm - backward * (n - 1) / n)


def _total(case: Case) -> float:
    return case.buckets * case.alpha + case.beta * case.size


EXERCISE = Exercise(
    id="21-2",
    title="Predict a step",
    answer="predict_step",
    trial=trial,
    expected=expected,
    formula=Formula(
        "call = alpha + beta * size / buckets\n"
        "backward = 2 / 3 * per_row * rows\n"
        "fixed + per_row * rows + max(call, buckets * call - backward * (buckets - 1) / buckets)",
        "fixed per_row size buckets alpha beta rows",
        lambda n: (
            [(2 * c.fixed, 2 * c.slope, c.size, c.buckets, c.alpha, c.beta, c.rows) for c in CASES]
            * n
        ),
    ),
    entries=labels,
    goals=(
        Goal("collectives", exactly=lambda n: len(CASES)),
        Goal("bytes sent", most=lambda n: 8 * len(CASES)),
    ),
    mistakes=(
        Mistake(
            "Each of your ranks predicts its own step. All wait for the slowest one in the "
            "all-reduce: the largest of their predictions counts, on every rank.",
            when=rank_simulated(lambda rank, n: [_step(case, rank, n) for case in CASES]),
        ),
        Mistake(
            "You add the ranks' predictions up or average them. They compute at the same time, and "
            "all wait for the slowest one: take the largest.",
            when=_gives(sum) | _gives(mean),
        ),
        Mistake(
            "You hide nothing: you add all of communication to computing. Every bucket but the "
            "last one can be sent while the backward pass goes on.",
            when=_gives(added=lambda case, fixed, backward: _total(case)),
        ),
        Mistake(
            "You hide communication behind all of backward. The first bucket is ready only after "
            "backward / buckets, and the last one leaves when backward has ended: its call always "
            "shows.",
            when=_gives(added=lambda case, fixed, backward: max(0.0, _total(case) - backward)),
        ),
        Mistake(
            "You count only the last bucket. If the all-reduces together take longer than what is "
            "left of backward after the first bucket, they queue.",
            when=_gives(added=lambda case, fixed, backward: _total(case) / case.buckets),
        ),
        Mistake(
            "You pay α once. Each bucket's all-reduce costs it.",
            when=_gives(added=_one_alpha),
        ),
        Mistake(
            "Your computing is proportional to the rows. A part of a step (the optimizer, say) "
            "does not depend on them: draw a line through the two measured times.",
            when=_gives(proportional=True),
        ),
        Mistake(
            "Your backward pass is two thirds of the whole step. The part that does not depend on "
            "the rows is not backward, and hides nothing.",
            when=_gives(whole=True),
        ),
        Mistake(
            "You take all of the time that grows with the rows for backward. A third of it is "
            "forward, during which there is no gradient to send.",
            when=_gives(share=1.0),
        ),
    ),
    hints=(
        "Three parts: computing (a line through the two measured times), what of the all-reduces "
        "is left when backward has ended, and the slowest rank.",
        "One all-reduce takes call = alpha + beta * size / buckets. Draw both timelines: bucket k "
        "is ready at k · backward / buckets, and the network sends one at a time.",
        "Either the network keeps up, and one call is left; or it is busy without a break from "
        "backward / buckets on, for buckets · call seconds. The larger rest counts. Then one "
        "all_reduce with ReduceOp.MAX.",
    ),
)
