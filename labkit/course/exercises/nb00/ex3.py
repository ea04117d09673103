"""Exercise 00-3: average a tensor over the ranks with one all_reduce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, simulated
from .reduced import left_by_reduce


def _brought(rank: int) -> torch.Tensor:
    """Return what a rank brings: no rank's numbers are an average, and one is negative."""
    return torch.tensor([rank + 1.25, 7.0 - 3.0 * rank * rank])


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> Any:
    return answer(_brought(here.rank).to(here.device))


def _sum(world_size: int) -> torch.Tensor:
    return torch.stack([_brought(r) for r in range(world_size)]).sum(0)


def expected(world_size: int) -> list[torch.Tensor]:
    return [_sum(world_size) / world_size] * world_size


def _reduced(yours: Any, expected: Any, n: int) -> bool:
    return left_by_reduce([mine * n for mine in yours], [_brought(r) for r in range(n)])


def _all_give(combine: Callable[[torch.Tensor], torch.Tensor]) -> Predicate:
    """Return the predicate of ranks that all have ``combine(what all bring)``, divided by their
    number or not."""
    give = lambda n: combine(torch.stack([_brought(r) for r in range(n)]))  # noqa: E731
    return simulated(lambda n: [give(n)] * n) | simulated(lambda n: [give(n) / n] * n)


def _each_gives(change: Callable[[torch.Tensor, int], torch.Tensor]) -> Predicate:
    """Return the predicate of ranks that have ``change(what it brings, n)`` each."""
    return simulated(lambda n: [change(_brought(r), n) for r in range(n)])


EXERCISE = Exercise(
    id="00-3",
    title="Average over the ranks",
    answer="average_of_all",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: 1),),
    mistakes=(
        Mistake(
            "dist.all_reduce changes the tensor that it is given and returns None: call it on "
            "a line of its own.",
            raises=r"^TypeError: unsupported operand type\(s\) for //?: 'NoneType'",
        ),
        Mistake(
            "Not every rank has the average: dist.reduce gives the sum to one rank only. "
            "dist.all_reduce gives it to all.",
            when=_reduced,
            hint="Compare the arguments: reduce has dst, the one rank that gets the result.",
        ),
        Mistake(
            "That is the sum: divide it by the number of ranks.",
            when=simulated(lambda n: [_sum(n)] * n),
        ),
        Mistake(
            "You divide by the number of ranks twice, before the all_reduce and after it; once is "
            "enough.",
            when=simulated(lambda n: [_sum(n) / n / n] * n),
        ),
        Mistake(
            "x.mean() is the mean of the numbers in one tensor. The average over the ranks keeps "
            "the two numbers apart: add up each of them over the ranks, then divide by the number "
            "of ranks.",
            when=_all_give(lambda all: all.sum(0).mean()) | _each_gives(lambda x, n: x.mean()),
        ),
        Mistake(
            "Each rank still has its own numbers: nothing was added up over the ranks.",
            when=_each_gives(lambda x, n: x) | _each_gives(lambda x, n: x / n),
        ),
        Mistake(
            "One collective is enough: one all_reduce adds up both numbers, on all ranks.",
            missed="collectives",
        ),
        Mistake(
            "This is the ranks' largest, smallest or product. An average needs their sum, which is "
            "what dist.all_reduce gives without op=; then divide by world_size.",
            when=_all_give(lambda all: all.amax(0))
            | _all_give(lambda all: all.amin(0))
            | _all_give(lambda all: all.prod(0)),
        ),
    ),
    hints=(
        "An average is a sum, divided by the number of terms. Section 5 has the call for the sum.",
        "dist.all_reduce(x) changes x itself and returns nothing. What is in x afterwards?",
        "Afterwards x holds the sums over all ranks: what is left to do with them?",
    ),
)
