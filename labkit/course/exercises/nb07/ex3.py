"""Exercise 07-3: halve or double the scale on all ranks together, also if only one overflows.

Nothing here computes in fp16 itself: powers of two and small integers give the same bits on every
processor, so what a wrong answer gives is known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...compare import number
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import When

STEPS, INTERVAL, FIRST = 12, 3, 1.0


def _overflows(step: int, rank: int, n: int) -> bool:
    """Tell whether a rank overflows: rank 1 in step 2, the last one in step 4."""
    return (step, rank) in ((2, min(1, n - 1)), (4, n - 1))


def trial(answer: Callable[..., Any], here: Here) -> list[float]:
    """Let the scale develop over twelve steps."""
    scale, good, scales = FIRST, 0, []
    for step in range(STEPS):
        scale, good = answer(scale, good, _overflows(step, here.rank, here.world_size), INTERVAL)
        scale, good = number(scale), number(good)
        scales.append(scale)
    return scales


#: rule(scale, good, overflow) -> scale, good
Rule = Callable[[float, int, bool], tuple[float, int]]


def _right(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2, 0) if good + 1 == INTERVAL else (scale, good + 1)


def _never_grows(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    return (scale / 2, 0) if overflow else (scale, good + 1)


def _keeps_counting(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    if overflow:
        return scale / 2, good
    return (scale * 2, 0) if good + 1 == INTERVAL else (scale, good + 1)


def _grows_late(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2, 0) if good == INTERVAL else (scale, good + 1)


def _grows_on(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2 if good + 1 >= INTERVAL else scale), good + 1


def _grows_once(scale: float, good: int, overflow: bool) -> tuple[float, int]:
    if overflow:
        return scale / 2, 0
    return (scale * 2 if good + 1 == INTERVAL else scale), good + 1


def _played(rule: Rule, n: int, rank: int | None = None) -> list[float]:
    """Play a rule in one process; with ``rank``, as if this rank knew its own overflows only."""
    scale, good, scales = FIRST, 0, []
    for step in range(STEPS):
        ranks = range(n) if rank is None else [rank]
        scale, good = rule(scale, good, any(_overflows(step, r, n) for r in ranks))
        scales.append(scale)
    return scales


def expected(n: int) -> list[list[float]]:
    """Play the rule in one process that knows all ranks' overflows."""
    return [_played(_right, n)] * n


def _plays(*rules: Rule) -> When:
    return lambda yours, expected, n: any(yours == [_played(rule, n)] * n for rule in rules)


EXERCISE = Exercise(
    id="07-3",
    title="Skip together",
    answer="next_scale",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: STEPS),),
    mistakes=(
        Mistake(
            "Only the ranks that overflow make the call, and they wait for the others. Every "
            "rank has to contribute its flag in every step, also a zero.",
            stuck=r"Cause: The call stands under a condition",
            shown_by={
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
            "One value is unpacked into two: next_scale has to return two, the new scale and the "
            "new count.",
            raises=r"cannot unpack non-iterable|not enough values to unpack",
            shown_by={
                "returns the scale only": body("""
                    flag = torch.tensor(float(overflow), device=device)
                    dist.all_reduce(flag)
                    return scale / 2 if flag > 0 else scale
                """),
            },
        ),
    ),
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
        "good + 1 == interval; neither. Only in the last one the count goes on.",
    ),
)
