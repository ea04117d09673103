"""Exercise 07-2: halve or double the scale on all ranks together, also if only one overflows.

Nothing here computes in fp16 itself: powers of two and small integers give the same bits on every
processor, so what a wrong answer gives is known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...compare import number
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
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
            shown_by={
                "leaves after its own overflow": edit(
                    "flag = torch.tensor(float(overflow), device=device)",
                    """
                    if overflow:
                        return scale / 2, 0
                    flag = torch.tensor(float(overflow), device=device)
                    """,
                ),
                "calls only after an overflow": edit(
                    """
                    flag = torch.tensor(float(overflow), device=device)
                    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
                    if flag > 0:
                    """,
                    """
                    if overflow:
                        dist.all_reduce(torch.ones(1, device=device))
                    """,
                ),
            },
        ),
        Mistake(
            "Each rank looks only at its own overflow, so the scales drift apart. Let all ranks "
            "know whether any of them overflowed.",
            when=lambda yours, expected, n: (
                yours == [_played(_right, n, r) for r in range(n)] and yours != expected
            ),
            shown_by={
                "decides alone": edit(
                    """
                    flag = torch.tensor(float(overflow), device=device)
                    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
                    if flag > 0:
                    """,
                    """
                    dist.barrier()
                    if overflow:
                    """,
                ),
            },
        ),
        Mistake(
            "The scale never grows: after interval good steps in a row, double it and begin to "
            "count again.",
            when=_plays(_never_grows),
            shown_by={
                "never grows": body("""
                    flag = torch.tensor(float(overflow), device=device)
                    dist.all_reduce(flag)
                    return (scale / 2, 0) if flag > 0 else (scale, good + 1)
                """),
            },
        ),
        Mistake(
            "The count goes on after a skipped step. The good steps have to be in a row: return "
            "0 as the count when a step is skipped.",
            when=_plays(_keeps_counting),
            shown_by={
                "counts on over a skipped step": edit(
                    "dist.all_reduce(flag, op=dist.ReduceOp.MAX)",
                    "dist.all_reduce(flag)",
                    "/ 2, 0",
                    "/ 2, good",
                )
            },
        ),
        Mistake(
            "It grows one step too late: the step that has just ended counts too.",
            when=_plays(_grows_late),
            shown_by={
                "grows late": edit(
                    "dist.all_reduce(flag, op=dist.ReduceOp.MAX)",
                    "dist.all_reduce(flag)",
                    "+ 1 ==",
                    "==",
                )
            },
        ),
        Mistake(
            "After the scale has grown, the count begins again: return 0 there too.",
            when=_plays(_grows_on, _grows_once),
            shown_by={
                "never starts again": edit(
                    "dist.all_reduce(flag, op=dist.ReduceOp.MAX)",
                    "dist.all_reduce(flag)",
                    """
                    if good + 1 == interval:
                        return scale * 2, 0
                    return scale, good + 1
                    """,
                    """
                    good += 1
                    return (scale * 2 if good >= interval else scale), good
                    """,
                ),
            },
        ),
        Mistake(
            "The scale grows after three good steps, whatever interval is: compare with interval.",
            when=_plays(_grows_after_three),
            shown_by={"always three": edit("good + 1 == interval", "good + 1 == 3")},
        ),
        Mistake(
            "One value is unpacked into two: next_scale has to return two, the new scale and the "
            "new count.",
            raises=r"\A\w+: (cannot unpack non-iterable \w+ object|not enough values to unpack "
            r"\(.*\)|iteration over a 0-d tensor)\Z",  # and no line of the answer's own
            shown_by={
                "returns the scale only": body("""
                    flag = torch.tensor(float(overflow), device=device)
                    dist.all_reduce(flag)
                    return scale / 2 if flag > 0 else scale
                """),
            },
        ),
        Mistake(
            "An overflow on one rank is enough: all ranks have to skip that step. Combine the "
            "flags with MAX, or add them up and compare with 0.",
            when=lambda yours, expected, n: all(
                own == _played(_right, n, n) and own != right
                for own, right in zip(yours, expected, strict=True)
            ),
            shown_by={
                "all have to overflow": edit("ReduceOp.MAX", "ReduceOp.MIN"),
                "two have to overflow": edit(", op=dist.ReduceOp.MAX", "", "flag > 0", "flag > 1"),
            },
        ),
    ),
    also_wrong={
        "unpacks what all_reduce returns": Wrong(
            edit("dist.all_reduce(flag, op", "flag, _ = dist.all_reduce(flag, op"), says="TypeError"
        ),
    },
    another=body("""
        flags = [torch.zeros(1, device=device) for _ in range(world_size)]
        dist.all_gather(flags, torch.full((1,), float(overflow), device=device))
        if any(flag.item() for flag in flags):
            return scale * 0.5, 0
        good = (good + 1) % interval
        return scale * (2 if good == 0 else 1), good
    """),
    hints=(
        "First make the ranks agree: did any of them overflow? Then all apply the same rule.",
        "Put float(overflow) into a tensor on device and all_reduce it with MAX: then it is "
        "above zero on all ranks if it was on one.",
        "There are three cases, each with a new scale and a new count: an overflow on any rank; "
        "good + 1 == interval; neither. Only in the last does the count go on.",
    ),
)
