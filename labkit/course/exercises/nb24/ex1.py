"""Exercise 24-1: find the k largest of all ranks' numbers without sending all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, near, parts, simulated

#: How many are asked for in each call, and of which type the numbers are.
TOPS = (3, 2)
TYPES = ("float32", "int64")
BYTES = 3 * 4 + 2 * 8
CALLS = range(len(TOPS))


def _scores(call: int, rank: int) -> torch.Tensor:
    """Return twelve numbers, no two of one rank alike, the best of them not of as many ranks:
    floats, of which the first two ranks have the same best one; then whole numbers below zero that
    float32 has not."""
    numbers = [29 * i % 97 + 17 * rank % 97 + 8 * rank for i in range(12)]
    if call == 0:
        floats = [(29.0 * i + 17 * rank) % 97 + 8 * rank for i in range(11)]
        return torch.tensor([*floats, 200.0 if rank < 2 else 50.0])
    return -(2**24) - 1 - torch.tensor([2 * number + rank % 2 for number in numbers])


def _best(call: int, numbers: torch.Tensor) -> torch.Tensor:
    return numbers.topk(TOPS[call]).values


def trial(answer: Callable[[torch.Tensor, int], Any], here: Here) -> list[Any]:
    """Give this rank's numbers, ask for the largest of all ranks: floats, then whole numbers."""
    results: list[Any] = []
    for call in CALLS:
        value = answer(_scores(call, here.rank).to(here.device), TOPS[call])
        results += [value, str(getattr(value, "dtype", "no tensor")).removeprefix("torch.")]
    return results


def expected(world_size: int) -> list[list[Any]]:
    """Look through all numbers in one process."""
    return _each(lambda call, rank, n: _best(call, torch.cat(_all(call, n))))(world_size)


def _gathered(n: int) -> torch.Tensor:
    """Return the best of each rank's floats, in order."""
    return torch.cat([_best(0, numbers) for numbers in _all(0, n)]).sort().values


def _all(call: int, n: int) -> list[torch.Tensor]:
    return [_scores(call, rank) for rank in range(n)]


def _each(simulate: Callable[[int, int, int], torch.Tensor]) -> Callable[[int], list[list[Any]]]:
    """Return what every rank gives if ``simulate(call, rank, n)`` is what it does."""
    return lambda n: [
        [item for call in CALLS for item in (simulate(call, rank, n), TYPES[call])]
        for rank in range(n)
    ]


def _gives(simulate: Callable[[int, int, int], torch.Tensor]) -> Predicate:
    return simulated(_each(simulate))


EXERCISE = Exercise(
    id="24-1",
    title="Find the largest numbers of all ranks",
    answer="largest_of_all",
    trial=trial,
    expected=expected,
    entries=[
        label
        for k, kind in zip(TOPS, TYPES, strict=True)
        for label in (f"largest_of_all(x, {k}), x of {kind}", "type of the result")
    ],
    forbids=("all_gather_object", "gather_object"),
    goals=(
        Goal("collectives", exactly=lambda n: len(TOPS)),
        Goal("bytes sent", most=lambda n: BYTES),
    ),
    mistakes=(
        Mistake(
            "Those are the largest numbers of each rank itself: nothing was sent, or what came was "
            "not used.",
            when=_gives(lambda call, rank, n: _best(call, _scores(call, rank))),
        ),
        Mistake(
            "Each rank sends only its largest number, but several of the k largest may be on one "
            "rank: send k from each.",
            when=_gives(
                lambda call, rank, n: _best(
                    call, torch.stack([x.max() for x in _all(call, max(n, 3))][:n])
                )
            ),
        ),
        Mistake(
            "You return all that was gathered, k numbers from each rank: choose the k largest of "
            "these.",
            when=lambda yours, expected, n: (
                n > 1 and all(near(y.sort().values, _gathered(n)) for y in parts(yours, 0))
            ),
        ),
        Mistake(
            "Those are the largest at each index: MAX compares first with first and second with "
            "second. Gather the numbers, then choose.",
            when=_gives(
                lambda call, rank, n: (
                    torch.stack([_best(call, x) for x in _all(call, n)]).max(0).values
                )
            ),
        ),
        Mistake(
            "The tensor to gather into holds floats, but x may hold integers: give it the type "
            "of x.",
            raises=r"different dtypes|invalid tensor type|must have the same",
        ),
        Mistake(
            "The numbers are right, but every rank sends all that it has. Only its own k largest "
            "can be among the k largest of all.",
            missed="bytes sent",
        ),
    ),
    hints=(
        "Which of a rank's numbers can be among the k largest of all? No more than k.",
        "Choose twice: first each rank among its own numbers, then every rank among all that were "
        "chosen.",
        "Between the two choices comes one all_gather_into_tensor, of k numbers per rank.",
    ),
)
