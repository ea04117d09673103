"""Exercise 02-4: give each rank its column of a matrix of which each rank holds one row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...compare import same
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, every_rank, simulated, some_rank
from .samples import LARGE

FLOAT, WHOLE = 4, 8  #: bytes
TYPES = (torch.float32, torch.int64)


def _matrix(n: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix whose numbers say their row and column; whole ones are large."""
    base = LARGE if dtype == torch.int64 else 0.5
    return torch.tensor([[base + 10 * r + c for c in range(n)] for r in range(n)], dtype=dtype)


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any]:
    """Give this rank's row of a matrix, ask for its column: of floats, then of whole numbers."""
    columns, unchanged = [], True
    for dtype in TYPES:
        row = _matrix(here.world_size, dtype)[here.rank].to(here.device)
        before = row.clone()
        column = answer(row)
        unchanged = unchanged and row.equal(before)
        columns.append(column.clone() if isinstance(column, torch.Tensor) else column)
    return [*columns, unchanged]


def expected(world_size: int) -> list[list[Any]]:
    return [[_matrix(world_size, dtype).T[rank] for dtype in TYPES] + [True]
            for rank in range(world_size)]  # fmt: skip


def _each(simulate: Callable[[torch.Tensor, int], torch.Tensor], unchanged: bool) -> Predicate:
    """Return whether every rank gives ``simulate(matrix, rank)``, and keeps its row or not."""
    return simulated(
        lambda n: [[*(simulate(_matrix(n, dtype), rank) for dtype in TYPES), unchanged]
                   for rank in range(n)]
    )  # fmt: skip


_columns_are_right = every_rank(lambda mine, its: same(mine[:2], its[:2]))


def _flat(column: Any) -> torch.Tensor:
    """Return the numbers of a tensor, or of a list of tensors."""
    return (
        torch.cat([_flat(part) for part in column])
        if isinstance(column, list)
        else column.flatten()
    )


@every_rank
def _numbers_are_right(mine: Any, its: Any) -> bool:
    return same([_flat(column) for column in mine[:2]], its[:2])


EXERCISE = Exercise(
    id="02-4",
    title="Turn rows into columns",
    answer="my_column",
    trial=trial,
    expected=expected,
    entries=("column of a matrix of floats", "column, whole numbers", "row stays as it is"),
    forbids=("all_gather", "all_gather_object"),
    goals=(
        Goal("collectives", exactly=lambda n: len(TYPES)),
        Goal("bytes sent", most=lambda n: (FLOAT + WHOLE) * n),
    ),
    mistakes=(
        Mistake(
            "That is the row with which the rank started: the call writes its result into its "
            "first argument.",
            when=_each(lambda matrix, rank: matrix[rank], True),
        ),
        Mistake(
            "The numbers are right, but the shape is not: join them into one tensor of n numbers "
            "(torch.cat).",
            when=lambda *found: _numbers_are_right(*found) and not _columns_are_right(*found),
        ),
        Mistake(
            "Every rank has the sum of the rows. An all_reduce adds, but here numbers only change "
            "places.",
            when=_each(lambda matrix, rank: matrix.sum(0), False),
        ),
        Mistake(
            "The column is right, but row was changed: receive into a separate tensor.",
            when=_columns_are_right & some_rank(lambda mine, its: mine[2] is False),
        ),
        Mistake(
            "The call has written into row, and your tensor for the result is unchanged: the "
            "first argument is the tensor for the result, the second is what you send.",
            when=lambda yours, expected, n: n > 1 and not any(y[2] for y in yours),
        ),
        Mistake(
            "The tensor for the result holds floats, but row holds integers: both need the same "
            "dtype (torch.empty_like).",
            raises=r"different dtypes|[Tt]ensors? .*(?:same|identical) type|must have the same",
        ),
        Mistake(
            "The result is right, but it takes several collectives per call, one for each rank. "
            "One of the eight sends from every rank to every rank in a single call.",
            missed="collectives",
        ),
        Mistake(
            "The result is right, but each rank sends the whole matrix, most of it zeros. Send "
            "each rank only the number that belongs to it.",
            missed="bytes sent",
        ),
    ),
    hints=(
        "Rank i has piece j for rank j. Which of the eight collectives takes it there?",
        "The tensor form of that collective cuts its input into one piece per rank.",
        "The tensor for the result has the shape and the dtype of row, and is the first argument.",
    ),
)
