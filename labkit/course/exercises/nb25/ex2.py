"""Exercise 25-2: merge the mean and the variance of all ranks' rows, with one collective.

The first rows are small whole numbers that depend on the rank, and show whose are in a result.
Those of the second call lie close together around 1000, where the mean of the squares minus the
squared mean has hardly a digit that is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, every_rank, near, rank_simulated

COLUMNS = 3
CALLS = range(2)


def _rows(call: int, rank: int) -> torch.Tensor:
    """Return rank + 1 rows of whole numbers; then 8 or 16 rows of quarters around 1000, whose
    means float32 holds exactly."""
    if call == 0:
        return (torch.arange(3.0 * (rank + 1)).view(-1, 3) * (rank + 2)) % 7 + rank
    quarters = torch.arange(3.0 * 8 * (1 + rank % 2)).view(-1, 3) ** 2 % (5 + rank)
    return 1000 + 0.25 * quarters


def trial(answer: Callable[..., Any], here: Here) -> list[torch.Tensor]:
    found = []
    for call in CALLS:
        mean, variance = answer(_rows(call, here.rank).to(here.device))
        found.append(torch.stack([mean, variance]))
    return found


def _statistics(rows: torch.Tensor, *, correction: int = 0) -> torch.Tensor:
    """Compute in float64: what one process would get if its numbers had more digits."""
    rows = rows.double()
    return torch.stack([rows.mean(dim=0), rows.var(dim=0, correction=correction)]).float()


def _together(call: int, n: int) -> torch.Tensor:
    return torch.cat([_rows(call, r) for r in range(n)])


def expected(n: int) -> list[list[torch.Tensor]]:
    return [[_statistics(_together(call, n)) for call in CALLS]] * n


def _first(simulate: Callable[[int, int], torch.Tensor]) -> Predicate:
    """Return the predicate of an answer that gives ``simulate(rank, n)`` for the whole numbers."""
    return rank_simulated(simulate, lambda own: own[0])


def _mean_of_statistics(rank: int, n: int) -> torch.Tensor:
    return torch.stack([_statistics(_rows(0, r)) for r in range(n)]).mean(dim=0)


def _weighted_statistics(rank: int, n: int) -> torch.Tensor:
    """Return the right mean, and the mean variance within the ranks."""
    rows = len(_together(0, n))
    parts = [_statistics(_rows(0, r)) * len(_rows(0, r)) / rows for r in range(n)]
    return torch.stack(parts).sum(dim=0)


EXERCISE = Exercise(
    id="25-2",
    title="Statistics of all ranks",
    answer="global_statistics",
    trial=trial,
    expected=expected,
    entries=("mean and variance of small whole numbers", "mean and variance of rows around 1000"),
    goals=(
        Goal("collectives", exactly=lambda n: len(CALLS)),
        Goal("bytes sent", most=lambda n: len(CALLS) * 4 * (2 * COLUMNS + 1)),
    ),
    mistakes=(
        Mistake(
            "These are the statistics of a rank's own rows: that is plain BatchNorm. Gather those "
            "of all ranks, and merge them.",
            when=_first(lambda rank, n: _statistics(_rows(0, rank))),
        ),
        Mistake(
            "You take the plain mean of the ranks' means and variances. A rank with more rows must "
            "count more, and the variance within the ranks misses how far their means are apart.",
            when=_first(_mean_of_statistics),
        ),
        Mistake(
            "The mean is right, but the variance is the mean of the ranks' variances: it misses "
            "how far the ranks' means are apart. Each rank adds the square of its mean's distance "
            "from the common mean.",
            when=_first(_weighted_statistics),
        ),
        Mistake(
            "You divide by the number of rows minus one. BatchNorm normalizes with the mean of the "
            "squared distances: unbiased=False.",
            when=_first(lambda rank, n: _statistics(_together(0, n), correction=1)),
        ),
        Mistake(
            "The variance is right for small numbers, but not around 1000: the mean of the squares "
            "minus the squared mean subtracts two nearly equal numbers, and float32 has too few "
            "digits for that. Gather every rank's mean, variance and number of rows, and merge "
            "them.",
            when=every_rank(  # all is right but the variances of the large numbers
                lambda mine, its: near(mine[0], its[0]) and near(mine[1][0], its[1][0])
            ),
        ),
        Mistake(
            "The result is right, but it takes more than one collective per call. Put mean, "
            "variance and the number of rows into one tensor, and gather that.",
            missed="collectives",
        ),
        Mistake(
            "The result is right, but every rank sends more bytes than 2c + 1 numbers of float32, "
            "the type of x, have. Its mean, its variance and the number of its rows are enough.",
            missed="bytes sent",
        ),
        Mistake(
            "The mean is that of the ranks' means, whatever their numbers of rows. A rank with "
            "more rows must count more: its share is its rows, divided by all.",
            when=rank_simulated(
                lambda rank, n: _mean_of_statistics(rank, n)[0], lambda own: own[0][0]
            ),
        ),
    ),
    hints=(
        "Three facts about each rank's rows are enough: their mean, their variance, and how many "
        "there are. Gather these, and merge them.",
        "Weight each rank by its share of all rows. The common mean is the weighted mean of the "
        "means. A rank's rows lie around its own mean, and that mean differs from the common one: "
        "both add to the variance.",
        "One tensor of 2c + 1 numbers per rank, by torch.cat, gathered and stacked. With "
        "weights count / all: each rank adds weight · (variance + (its mean - mean)²).",
    ),
)
