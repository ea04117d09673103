"""Exercise 17-2: compute mean and variance over the rows of all ranks, with one collective.

Rank r's numbers are small whole ones that depend on r, so that means and sums over ranks are exact
and tell who is in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from ...mistakes import would_give


def _rows(rank: int) -> torch.Tensor:
    """Return rank + 1 rows of three whole numbers."""
    return (torch.arange(3.0 * (rank + 1)).view(-1, 3) * (rank + 2)) % 7 + rank


def trial(answer: Callable[..., Any], here: Here) -> torch.Tensor:
    mean, variance = answer(_rows(here.rank).to(here.device))
    return torch.stack([mean, variance])


def _statistics(rows: torch.Tensor) -> torch.Tensor:
    return torch.stack([rows.mean(dim=0), rows.var(dim=0, unbiased=False)])


def _together(n: int) -> torch.Tensor:
    return torch.cat([_rows(r) for r in range(n)])


def expected(n: int) -> list[torch.Tensor]:
    return [_statistics(_together(n))] * n


def _mean_of_statistics(n: int) -> torch.Tensor:
    return torch.stack([_statistics(_rows(r)) for r in range(n)]).mean(dim=0)


def _weighed_statistics(n: int) -> torch.Tensor:
    """Return the right mean, and the mean variance within the ranks."""
    rows = len(_together(n))
    parts = [_statistics(_rows(r)) * len(_rows(r)) / rows for r in range(n)]
    return torch.stack(parts).sum(dim=0)


def _unbiased(n: int) -> torch.Tensor:
    rows = _together(n)
    return torch.stack([rows.mean(dim=0), rows.var(dim=0)])


EXERCISE = Exercise(
    id="17-2",
    title="Statistics of all ranks",
    answer="global_statistics",
    trial=trial,
    expected=expected,
    goals=(
        Goal("collectives", exactly=lambda n: 1),
        Goal("bytes sent", most=lambda n: 8 * (2 * 3 + 1)),
    ),
    mistakes=(
        Mistake(
            "These are the statistics of a rank's own rows: that is plain BatchNorm. Add up over "
            "the ranks.",
            when=would_give(lambda n: [_statistics(_rows(r)) for r in range(n)]),
            shown_by={"a rank's own": body("return x.mean(0), x.var(0, unbiased=False)")},
        ),
        Mistake(
            "You take the mean of the ranks' means and variances. A rank with more rows must "
            "count more, and a mean of variances misses how far apart the ranks' means are: add "
            "up sums and squares instead.",
            when=would_give(lambda n: [_mean_of_statistics(n)] * n),
            shown_by={
                "the mean of means": body("""
                    mine = torch.stack([x.mean(0), x.var(0, unbiased=False)])
                    dist.all_reduce(mine)
                    mean, variance = mine / world_size
                    return mean, variance
                """),
            },
        ),
        Mistake(
            "The mean is right, but the variance is the mean of the ranks' variances: it misses "
            "how far apart the ranks' means are. Add up the squares instead.",
            when=would_give(lambda n: [_weighed_statistics(n)] * n),
            shown_by={
                "the mean of variances": body("""
                    sums = torch.cat(
                        [x.sum(0), len(x) * x.var(0, unbiased=False), x.new_tensor([len(x)])]
                    )
                    dist.all_reduce(sums)
                    mean, variance = (sums[:-1] / sums[-1]).chunk(2)
                    return mean, variance
                """),
            },
        ),
        Mistake(
            "You divide by the number of rows minus one. BatchNorm normalizes with the plain "
            "mean of the squares, minus the mean squared.",
            when=would_give(lambda n: [_unbiased(n)] * n),
            shown_by={
                "one less": edit(
                    """
                    mean, squares = (mine[:-1] / mine[-1]).chunk(2)
                    return mean, squares - mean**2
                    """,
                    """
                    count = mine[-1]
                    mean, squares = (mine[:-1] / count).chunk(2)
                    return mean, (squares - mean**2) * count / (count - 1)
                    """,
                ),
            },
        ),
        Mistake(
            "The result is right, but it takes more than one collective. Put sums, squares and "
            "the number of rows into one tensor, and all_reduce that.",
            missed="collectives",
            shown_by={
                "three collectives": body("""
                    total, squares, count = x.sum(0), (x * x).sum(0), x.new_tensor([len(x)])
                    for part in (total, squares, count):
                        dist.all_reduce(part)
                    return total / count, squares / count - (total / count) ** 2
                """),
            },
        ),
    ),
    also_wrong={
        "the mean only": Wrong(
            edit(
                "(x * x).sum(0), x",
                "x",
                """
                mean, squares = (mine[:-1] / mine[-1]).chunk(2)
                return mean, squares - mean**2
                """,
                "return mine[:-1] / mine[-1]",
            ),
            says="ValueError",
        ),
    },
    another=body("""
        columns = x.shape[1]
        sums = x.new_zeros(2 * columns + 1)
        sums[:columns] = x.sum(dim=0)
        sums[columns:-1] = x.pow(2).sum(dim=0)
        sums[-1] = x.shape[0]
        dist.all_reduce(sums)
        mean = sums[:columns] / sums[-1]
        return mean, sums[columns:-1] / sums[-1] - mean.pow(2)
    """),
    hints=(
        "What adds up over ranks? Not means and variances, but sums, sums of squares, and counts.",
        "One tensor of 2c + 1 numbers: x.sum(0), (x * x).sum(0) and len(x). After the all_reduce "
        "the mean is total / count and the variance squares / count - mean².",
        "torch.cat joins the three, the number of rows as x.new_tensor([len(x)]). After the "
        "all_reduce, mine[:-1] / mine[-1] holds the means, and after them the means of the "
        "squares.",
    ),
)
