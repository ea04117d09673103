"""Exercise 02-2: average samples whose number differs from rank to rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...compare import number
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, near, simulated
from .samples import LENGTHS, numbers, shares

CALLS = range(len(LENGTHS))


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any]:
    """Average samples whose number differs from rank to rank, once with none on some rank."""
    return [_rounded(answer(numbers(call, here.rank).to(here.device))) for call in CALLS]


def _rounded(value: Any) -> Any:
    """Return a number with the digits that float32 has, anything else as it is."""
    value = number(value)
    return float(f"{value:.7g}") if isinstance(value, float) else value


def expected(world_size: int) -> list[list[float]]:
    return [[_rounded(_all(call, world_size).mean()) for call in CALLS]] * world_size


def _all(call: int, n: int) -> torch.Tensor:
    return torch.cat([numbers(call, rank) for rank in range(n)])


def _each(simulate: Callable[[int, int, int], torch.Tensor]) -> Predicate:
    """Return the predicate of ``simulate(call, rank, n)`` on every rank."""
    return simulated(
        lambda n: [[simulate(call, rank, n).item() for call in CALLS] for rank in range(n)]
    )


def _means(call: int, n: int) -> torch.Tensor:
    return torch.stack([numbers(call, r).mean() for r in range(n)])


def _count(call: int, rank: int) -> torch.Tensor:
    return torch.tensor(float(len(numbers(call, rank))))


EXERCISE = Exercise(
    id="02-2",
    title="Average uneven shares with one collective",
    answer="mean_of_all",
    trial=trial,
    expected=expected,
    entries=lambda n: [f"mean, {shares(call, n)}" for call in CALLS],
    goals=(Goal("collectives", exactly=lambda n: len(CALLS)),),
    mistakes=(
        Mistake(
            "That is the mean of the ranks' means: a rank with two samples counts as much as a "
            "rank with five, and a rank with none has no mean. Sum the samples, and sum their "
            "counts.",
            when=_each(lambda call, rank, n: _means(call, n).mean())
            | _each(lambda call, rank, n: _means(call, n).nan_to_num().mean()),
        ),
        Mistake(
            "The sum is divided by the number of ranks. Divide it by the number of samples on all "
            "ranks.",
            when=_each(lambda call, rank, n: _all(call, n).sum() / n),
        ),
        Mistake(
            "Each rank divides the sum by its own number of samples times the number of ranks. "
            "That is the number of all samples only if every rank has the same number; sum the "
            "ranks' counts too.",
            when=_each(lambda call, rank, n: _all(call, n).sum() / _count(call, rank) / n),
        ),
        Mistake(
            "Each rank divides the sum over all ranks by its own number of samples; sum the ranks' "
            "counts too.",
            when=_each(lambda call, rank, n: _all(call, n).sum() / _count(call, rank)),
        ),
        Mistake(
            "That is the sum of all samples. Divide it by the number of samples on all ranks.",
            when=_each(lambda call, rank, n: _all(call, n).sum()),
        ),
        Mistake(
            "Each rank averages only its own samples: nothing was sent between ranks.",
            when=_each(lambda call, rank, n: numbers(call, rank).mean()),
        ),
        Mistake(
            "Only one rank has the mean of all samples. reduce and gather leave their result on "
            "the destination only; which collective leaves it on every rank?",
            when=lambda yours, expected, n: n > 1 and sum(map(near, yours, expected)) == 1,
        ),
        Mistake(
            "The ranks pass tensors of different lengths to the collective. Pass something of the "
            "same shape on every rank: a sum and a count.",
            raises=r"Died: signal 6|invalid tensor size",
            stuck=r"Cause: They call \w+ with different shapes",
        ),
        Mistake(
            "The result is right, but it takes more than one collective per call: put the sum "
            "and the count into one tensor.",
            missed="collectives",
        ),
    ),
    hints=(
        "The mean of all samples is their sum, divided by how many there are. Both are sums "
        "over the ranks.",
        "An all_reduce adds element by element, so one tensor can carry several sums at once.",
        "In a tensor of two numbers, the first can be this rank's sum and the second its count.",
    ),
)
