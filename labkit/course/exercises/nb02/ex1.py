"""Exercise 02-1: average samples of which every rank has another number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...answers import body
from ...exercise import Exercise, Goal, Here, Mistake
from .samples import uneven


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> Any:
    """Average samples of which every rank has another number."""
    value = answer(uneven(here.rank).to(here.device))
    return value if value is None else float(value)


def expected(world_size: int) -> list[float]:
    """Average all samples in one process."""
    return [torch.cat([uneven(r) for r in range(world_size)]).mean().item()] * world_size


def _close(yours: Sequence[Any], wanted: float) -> bool:
    return all(isinstance(y, float) and abs(y - wanted) < 1e-3 for y in yours)


def _mean_of_means(n: int) -> float:
    return sum(uneven(r).mean().item() for r in range(n)) / n


EXERCISE = Exercise(
    id="02-1",
    title="Average uneven shares with one collective",
    answer="mean_of_all",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: 1),),
    mistakes=(
        Mistake(
            "That is the mean of the ranks' means: a rank with one sample counts as much as a "
            "rank with four. Add up the samples, and how many there are.",
            when=lambda yours, expected, n: _close(yours, _mean_of_means(n)),
            shown_by={
                "averages the means": body("""
                    mean = samples.mean()
                    dist.all_reduce(mean)
                    return mean / world_size
                """),
            },
        ),
        Mistake(
            "The sum is divided by the number of ranks; divide it by the number of samples on "
            "all ranks.",
            when=lambda yours, expected, n: _close(
                yours, sum(uneven(r).sum().item() for r in range(n)) / n
            ),
            shown_by={
                "divides by the number of ranks": body("""
                    total = samples.sum()
                    dist.all_reduce(total)
                    return total / world_size
                """),
            },
        ),
        Mistake(
            "Each rank averages its own samples only: nothing has crossed between ranks.",
            when=lambda yours, expected, n: all(
                isinstance(y, float) and abs(y - uneven(r).mean().item()) < 1e-3
                for r, y in enumerate(yours)
            ),
            shown_by={"talks to nobody": body("return samples.mean()")},
        ),
        Mistake(
            "The ranks bring tensors of different lengths to the collective. Bring something "
            "of the same shape on every rank: a sum and a count.",
            raises=r"Died: signal 6|invalid tensor size",
            stuck=r"Cause: They call \w+ with different shapes",
            shown_by={
                "adds up tensors of different lengths": body("""
                    dist.all_reduce(samples)
                    return samples.mean()
                """),
            },
        ),
        Mistake(
            "The result is right, but it takes two collectives: put the sum and the count "
            "into one tensor.",
            missed="collectives",
            shown_by={
                "calls twice": body("""
                    total = samples.sum()
                    count = torch.tensor(len(samples), device=device)
                    dist.all_reduce(total)
                    dist.all_reduce(count)
                    return total / count
                """),
            },
        ),
    ),
    another=body("""
        both = [torch.zeros(2, device=device) for _ in range(world_size)]
        mine = torch.tensor([samples.sum().item(), len(samples)], device=device)
        dist.all_gather(both, mine)
        total, count = sum(both)
        return (total / count).item()
    """),
    hints=(
        "The mean of all samples is their sum, divided by how many there are. Both are sums "
        "over the ranks.",
        "One tensor can carry both: torch.stack([samples.sum(), …]), or a list of two numbers.",
        "t = torch.tensor([samples.sum(), len(samples)], device=device); all_reduce t; return "
        "its first number divided by its second.",
    ),
)
