"""Exercise 21-4: agree on how many steps lie between two saves (Young 1974, Daly 2006)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, rank_simulated
from ...slips import Formula


@dataclass(frozen=True)
class Case:
    """The fastest rank's save, a step, and the mean time between failures of one GPU."""

    save: float
    step: float
    mtbf: float

    def own(self, rank: int, n: int) -> float:
        """Return the seconds that this rank's save takes: the last but one is the slowest."""
        return self.save * (2.25 if rank == n - 2 else 1 + 0.125 * (rank % 3))


#: The last one has steps that take longer than the best interval.
CASES = (
    Case(1.0, 0.25, 3600.0),
    Case(30.0, 6.0, 1.8e8),
    Case(4.0, 0.7, 1e6),
    Case(0.5, 90.0, 40.0),
)


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(c.own(here.rank, here.world_size), c.step, c.mtbf) for c in CASES]


def labels(n: int) -> list[str]:
    return [f"save_every(save, {c.step:g}, {c.mtbf:g})" for c in CASES]


def _slowest(case: Case, n: int) -> float:
    return max(case.own(rank, n) for rank in range(n))


def steps(save: float, mtbf: float, step: float, least: int = 1) -> int:
    """Return the best interval in steps."""
    return max(least, round(math.sqrt(2 * save * mtbf) / step))


def expected(n: int) -> list[list[int]]:
    return [[steps(_slowest(case, n), case.mtbf / n, case.step) for case in CASES]] * n


def _sum(case: Case, n: int) -> float:
    return sum(case.own(rank, n) for rank in range(n))


def _gives(simulate: Callable[[Case, int, int], float]) -> Predicate:
    """Return the predicate of an answer that gives ``simulate(case, rank, n)``."""
    return rank_simulated(lambda rank, n: [simulate(case, rank, n) for case in CASES])


EXERCISE = Exercise(
    id="21-4",
    title="How often to save",
    answer="save_every",
    trial=trial,
    expected=expected,
    formula=Formula(
        "slowest = max(saves)\nmax(1, round(sqrt(2 * slowest * mtbf / world_size) / step))",
        "saves step mtbf world_size",
        lambda n: [([c.own(r, n) for r in range(n)], c.step, c.mtbf, n) for c in CASES] * n,
    ),
    entries=labels,
    goals=(
        Goal("collectives", exactly=lambda n: len(CASES)),
        Goal("bytes sent", most=lambda n: 8 * len(CASES)),
    ),
    mistakes=(
        Mistake(
            "Your ranks disagree: each takes the time of its own save. They would save at "
            "different steps, and wait for each other for ever. All wait for the slowest save: "
            "take the largest, with one collective.",
            when=_gives(lambda c, rank, n: steps(c.own(rank, n), c.mtbf / n, c.step)),
        ),
        Mistake(
            "You add the ranks' saves up, or average them. They save at the same time, and the "
            "slowest one decides.",
            when=_gives(lambda c, rank, n: steps(_sum(c, n), c.mtbf / n, c.step))
            | _gives(lambda c, rank, n: steps(_sum(c, n) / n, c.mtbf / n, c.step)),
        ),
        Mistake(
            "mtbf is that of one GPU. The job stops when any of them fails: with world_size of "
            "them, world_size times as often.",
            when=_gives(lambda c, rank, n: steps(_slowest(c, n), c.mtbf, c.step)),
        ),
        Mistake(
            "More GPUs fail more often, not less: divide mtbf by world_size.",
            when=_gives(lambda c, rank, n: steps(_slowest(c, n), c.mtbf * n, c.step)),
        ),
        Mistake(
            "The factor 2 is missing. On average half an interval is lost per failure, not a whole "
            "one: √(2 · save · mtbf).",
            when=_gives(lambda c, rank, n: steps(_slowest(c, n) / 2, c.mtbf / n, c.step)),
        ),
        Mistake(
            "Where a step takes longer than the best interval, you save every 0 steps. At least "
            "one step lies between two saves.",
            when=_gives(lambda c, rank, n: steps(_slowest(c, n), c.mtbf / n, c.step, least=0)),
        ),
    ),
    hints=(
        "How long does a save hold the ranks up, and how often does a job of world_size GPUs fail?",
        "The slowest rank's save counts: all_reduce with ReduceOp.MAX. The job's mtbf is one GPU's "
        "divided by world_size.",
        "The best interval in seconds is the root of twice the save times the job's mtbf. In steps "
        "that is divided by step and rounded, and never 0.",
    ),
)
