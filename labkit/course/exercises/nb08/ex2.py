"""Exercise 08-2: halve or double the scale on all ranks together, also if only one overflows.

Nothing here computes in fp16 itself: powers of two and small integers give the same bits on every
processor, so what a wrong answer gives is known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compare import number
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, simulated

FIRST = 1.0
#: Of each run, its interval and who overflows in a step: rank 0, 1 or the last one, as -1.
RUNS: tuple[tuple[int, tuple[int | None, ...]], ...] = (
    (3, (None, None, 1, None, -1, None, None, None, None, None, None, None)),
    (2, (None, None, None, 0, None, None)),
)
STEPS = sum(len(run) for _, run in RUNS)


def _who(overflows: int | None, n: int) -> int | None:
    return None if overflows is None else n - 1 if overflows < 0 else min(overflows, n - 1)


def _steps(n: int) -> list[str]:
    """Return a label for each step, which says its interval and who overflowed."""
    labels = []
    for interval, run in RUNS:
        for step, overflows in enumerate(run):
            who = _who(overflows, n)
            what = "no overflow" if who is None else f"rank {who} overflowed"
            labels.append(f"the scale after step {step} (interval {interval}, {what})")
    return labels


def trial(answer: Callable[..., Any], here: Here) -> list[float]:
    scales = []
    for interval, run in RUNS:
        scale, good = FIRST, 0
        for overflows in run:
            mine = _who(overflows, here.world_size) == here.rank
            scale, good = answer(scale, good, mine, interval)
            scale, good = number(scale), number(good)
            scales.append(scale)
    return scales


#: rule(scale, good, overflow, interval) -> scale, good
Rule = Callable[[float, int, bool, int], tuple[float, int]]


def _rule(
    grows: Callable[[int, int], bool] = lambda good, interval: good + 1 == interval,
    *,
    skipped: Callable[[int], int] = lambda good: 0,
    grown: Callable[[int], int] = lambda good: 0,
) -> Rule:
    """Return the rule that doubles the scale if ``grows(good, interval)``; ``skipped(good)`` and
    ``grown(good)`` are the counts after an overflow and after the scale has grown."""

    def rule(scale: float, good: int, overflow: bool, interval: int) -> tuple[float, int]:
        if overflow:
            return scale / 2, skipped(good)
        return (scale * 2, grown(good)) if grows(good, interval) else (scale, good + 1)

    return rule


_right = _rule()


def _simulation(rule: Rule, n: int, rank: int | None = None) -> list[float]:
    """Play a rule in one process; with ``rank``, as if this rank knew its own overflows only."""
    scales = []
    for interval, run in RUNS:
        scale, good = FIRST, 0
        for overflows in run:
            who = _who(overflows, n)
            scale, good = rule(
                scale, good, who is not None and (rank is None or who == rank), interval
            )
            scales.append(scale)
    return scales


def expected(n: int) -> list[list[float]]:
    return [_simulation(_right, n)] * n


def _simulated(rule: Rule) -> Predicate:
    return simulated(lambda n: [_simulation(rule, n)] * n)


EXERCISE = Exercise(
    id="08-2",
    title="Skip together",
    answer="next_scale",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: STEPS),),
    entries=_steps,
    mistakes=(
        Mistake(
            "Not every rank makes the call in every step: one that returns before it lets the "
            "others wait, and one that makes it only after its own overflow waits for them. Every "
            "rank has to contribute its flag in every step, even a zero.",
            stuck=r"Cause: The call stands under a condition",
        ),
        Mistake(
            "Each rank looks only at its own overflow, so the scales drift apart. Let all ranks "
            "know whether any of them overflowed.",
            when=simulated(lambda n: [_simulation(_right, n, r) for r in range(n)]),
        ),
        Mistake(
            "The scale never grows: after interval good steps in a row, double it and begin to "
            "count again.",
            when=_simulated(_rule(lambda good, interval: False)),
        ),
        Mistake(
            "The count goes on after a skipped step. The good steps have to be in a row: return "
            "0 as the count when a step is skipped.",
            when=_simulated(_rule(skipped=lambda good: good)),
        ),
        Mistake(
            "It grows one step too late: the step that has just ended counts too.",
            when=_simulated(_rule(lambda good, interval: good == interval)),
        ),
        Mistake(
            "After the scale has grown, the count begins again: return 0 there too.",
            when=_simulated(_rule(grown=lambda good: good + 1))
            | _simulated(
                _rule(lambda good, interval: good + 1 >= interval, grown=lambda good: good + 1)
            ),
        ),
        Mistake(
            "The scale grows after three good steps, whatever interval is: compare with interval.",
            when=_simulated(_rule(lambda good, interval: good + 1 == 3)),
        ),
        Mistake(
            "One value is unpacked into two: next_scale has to return two, the new scale and the "
            "new count.",
            raises=r"\A\w+: (cannot unpack non-iterable \w+ object|not enough values to unpack "
            r"\(.*\)|iteration over a 0-d tensor)\Z",  # and no line of the answer's own
        ),
        Mistake(
            "An overflow on one rank is enough: all ranks have to skip that step. Combine the "
            "flags with MAX, or add them up and compare with 0.",
            when=simulated(lambda n: [_simulation(_right, n, n)] * n),
        ),
    ),
    hints=(
        "First make the ranks agree: did any of them overflow? Then all apply the same rule.",
        "Put float(overflow) into a tensor on device and all_reduce it with MAX: then it is "
        "above zero on all ranks if it was on one.",
        "There are three cases, each with a new scale and a new count: an overflow on any rank; "
        "good + 1 == interval; neither. Only in the last does the count go on.",
    ),
)
