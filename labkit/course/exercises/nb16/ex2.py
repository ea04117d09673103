"""Exercise 16-2: tell whether all ranks hold the same tensor, with one collective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake

#: How often a trial asks.
QUESTIONS = 4


def _opinions(rank: int, world_size: int) -> list[list[int]]:
    """Return what a rank holds in each question: the same as all; on the last rank something else
    in one place; numbers whose mean most ranks hold; on the last rank another order."""
    last = rank == world_size - 1
    around = 2 if last else min(rank, 1)
    return [[3, 7], [3, 8 if last else 7], [around, 7], [7, 3] if last else [3, 7]]


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any]:
    """Ask four times whether all ranks hold the same."""
    verdicts: list[Any] = []
    for numbers in _opinions(here.rank, here.world_size):
        value = answer(torch.tensor(numbers, device=here.device))
        verdicts.append(value if value is None else bool(value))
    return verdicts


def expected(world_size: int) -> list[list[bool]]:
    """Compare in one process."""
    brought = [_opinions(r, world_size) for r in range(world_size)]
    verdicts = [all(b[q] == brought[0][q] for b in brought) for q in range(QUESTIONS)]
    return [verdicts] * world_size


EXERCISE = Exercise(
    id="16-2",
    title="Do all ranks hold the same?",
    answer="all_agree",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: QUESTIONS),),
    mistakes=(
        Mistake(
            "The ranks come to different verdicts: each compares with what it holds itself. "
            "Compare two things that are the same everywhere: the smallest and the largest.",
            when=lambda yours, expected, n: any(
                len({y[q] for y in yours}) > 1 for q in range(QUESTIONS)
            ),
            shown_by={
                "compares with rank 0": body("""
                    other = x.clone()
                    dist.broadcast(other, src=0)
                    return x.equal(other)
                """),
                "compares with the mean": body("""
                    mean = x.clone()
                    dist.all_reduce(mean)
                    return mean.equal(x * world_size)
                """),
                "asks for the largest only": body("""
                    largest = x.clone()
                    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
                    return x.equal(largest)
                """),
            },
        ),
        Mistake(
            "3, 7 and 7, 3 have the same sum and are not the same: compare place by place.",
            when=lambda yours, expected, n: all(y[3] is True for y in yours),
            shown_by={
                "compares sums": edit(
                    "cat([x, -x])",
                    "stack([x.sum(), -x.sum()])",
                    """
                    largest, smallest = both.chunk(2)
                    return largest.equal(-smallest)
                    """,
                    "return bool(both[0] == -both[1])",
                ),
            },
        ),
        Mistake(
            "It says yes where a rank holds something else. Of how many places does it look at "
            "the result? All have to agree.",
            when=lambda yours, expected, n: all(
                any(y[q] is True and e[q] is False for q in range(QUESTIONS))
                for y, e in zip(yours, expected, strict=True)
            ),
            shown_by={
                "looks at one place": edit(
                    "cat([x, -x])",
                    "stack([x[0], -x[0]])",
                    """
                    largest, smallest = both.chunk(2)
                    return largest.equal(-smallest)
                    """,
                    "return bool(both[0] == -both[1])",
                ),
            },
        ),
        Mistake(
            "The verdict is right, but it takes two collectives: the smallest number is the "
            "largest of the negative ones, with the sign turned, so one MAX gives both.",
            missed="collectives",
            shown_by={
                "calls twice": body("""
                    largest, smallest = x.clone(), x.clone()
                    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
                    dist.all_reduce(smallest, op=dist.ReduceOp.MIN)
                    return largest.equal(smallest)
                """),
            },
        ),
    ),
    another=body("""
        everyone = torch.empty(world_size * len(x), dtype=x.dtype, device=device)
        dist.all_gather_into_tensor(everyone, x)
        return bool((everyone.view(world_size, -1) == everyone[: len(x)]).all())
    """),
    hints=(
        "If the smallest of all ranks is also the largest, everybody holds the same.",
        "MAX of -x over the ranks is minus the MIN of x. One tensor can carry both x and -x.",
        "both = torch.cat([x, -x]); all_reduce it with MAX; largest, smallest = both.chunk(2); "
        "they agree if largest.equal(-smallest).",
    ),
)
