"""Exercise 07-2: halve or double the scale on all ranks together, also if only one overflows.

Nothing here computes in fp16 itself: powers of two and small integers give the same bits on every
processor, so what a wrong answer gives is known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compare import number
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import When

FIRST = 1.0
#: Of each run, its interval and who overflows in a step: rank 0, 1 or the last one, as -1.
RUNS: tuple[tuple[int, tuple[int | None, ...]], ...] = (
    (3, (None, None, 1, None, -1, None, None, None, None, None, None, None)),
    (2, (None, None, None, 0, None, None)),
)
STEPS = sum(len(run) for _, run in RUNS)


def _who(overflows: int | None, n: int) -> int | None:
    """Return the rank that overflows among n."""
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
    """Let the scale develop over the steps of each run."""
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


def _right(scale: float, good: int, overflow: bool, interval: int) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2, 0) if good + 1 == interval else (scale, good + 1)


def _never_grows(scale: float, good: int, overflow: bool, interval: int) -> tuple[float, int]:
    return (scale / 2, 0) if overflow else (scale, good + 1)


def _keeps_counting(scale: float, good: int, overflow: bool, interval: int) -> tuple[float, int]:
    if overflow:
        return scale / 2, good
    return (scale * 2, 0) if good + 1 == interval else (scale, good + 1)


def _grows_late(scale: float, good: int, overflow: bool, interval: int) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2, 0) if good == interval else (scale, good + 1)


def _grows_on(scale: float, good: int, overflow: bool, interval: int) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2 if good + 1 >= interval else scale), good + 1


def _grows_once(scale: float, good: int, overflow: bool, interval: int) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2 if good + 1 == interval else scale), good + 1


def _grows_after_three(scale: float, good: int, overflow: bool, interval: int) -> tuple[float, int]:
    return _right(scale, good, overflow, 3)


def _played(rule: Rule, n: int, rank: int | None = None) -> list[float]:
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
    """Play the rule in one process that knows all ranks' overflows."""
    return [_played(_right, n)] * n


def _plays(*rules: Rule) -> When:
    return lambda yours, expected, n: any(yours == [_played(rule, n)] * n for rule in rules)


EXERCISE = Exercise(
    id="07-2",
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
            when=lambda yours, expected, n: (
                yours == [_played(_right, n, r) for r in range(n)] and yours != expected
            ),
        ),
        Mistake(
            "The scale never grows: after interval good steps in a row, double it and begin to "
            "count again.",
            when=_plays(_never_grows),
        ),
        Mistake(
            "The count goes on after a skipped step. The good steps have to be in a row: return "
            "0 as the count when a step is skipped.",
            when=_plays(_keeps_counting),
        ),
        Mistake(
            "It grows one step too late: the step that has just ended counts too.",
            when=_plays(_grows_late),
        ),
        Mistake(
            "After the scale has grown, the count begins again: return 0 there too.",
            when=_plays(_grows_on, _grows_once),
        ),
        Mistake(
            "The scale grows after three good steps, whatever interval is: compare with interval.",
            when=_plays(_grows_after_three),
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
            when=lambda yours, expected, n: all(
                own == _played(_right, n, n) and own != right
                for own, right in zip(yours, expected, strict=True)
            ),
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
