"""Exercise 02-2: give each rank its column of a matrix that lies on the ranks row by row."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...answers import body, edit, whole
from ...compare import same
from ...exercise import Exercise, Goal, Here, Mistake, Wrong

FLOAT = 4  #: bytes


def _matrix(world_size: int) -> torch.Tensor:
    return torch.tensor([[10.0 * r + c for c in range(world_size)] for r in range(world_size)])


def trial(answer: Callable[[torch.Tensor], torch.Tensor], here: Here) -> torch.Tensor:
    """Give this rank's row of a matrix, ask for its column."""
    return answer(_matrix(here.world_size)[here.rank].to(here.device))


def expected(world_size: int) -> list[torch.Tensor]:
    """Cut the matrix into columns in one process."""
    return list(_matrix(world_size).T)


EXERCISE = Exercise(
    id="02-2",
    title="Turn rows into columns",
    answer="my_column",
    trial=trial,
    expected=expected,
    forbids=("all_gather", "all_gather_object"),
    goals=(
        Goal("collectives", exactly=lambda n: 1),
        Goal("bytes sent", most=lambda n: FLOAT * n),
    ),
    mistakes=(
        Mistake(
            "That is the row that the rank began with: the result of the call is in its first "
            "argument.",
            when=lambda yours, expected, n: same(yours, list(_matrix(n))),
            shown_by={"returns what it sent": edit("return column", "return row")},
        ),
        Mistake(
            "The numbers are right, the shape is not: put them together into one tensor of n "
            "numbers (torch.cat).",
            when=lambda yours, expected, n: all(
                torch.as_tensor(y).numel() == n and torch.as_tensor(y).flatten().equal(e)
                for y, e in zip(yours, expected, strict=True)
            ),
            shown_by={
                "leaves it in pieces": body("""
                    pieces = [torch.empty(1, device=device) for _ in row]
                    dist.all_to_all(pieces, list(row.split(1)))
                    return torch.stack(pieces)
                """),
            },
        ),
        Mistake(
            "The tensor for the result is still as it was made: it goes first in the call, "
            "what you send second.",
            when=lambda yours, expected, n: all(not y.any() for y in yours),
            shown_by={
                "swaps input and output": edit(
                    "empty_like", "zeros_like", "column, row", "row, column"
                )
            },
        ),
        Mistake(
            "Every rank has the sum of the rows: an all_reduce adds, and here numbers only "
            "change places.",
            when=lambda yours, expected, n: same(yours, [_matrix(n).sum(0)] * n),
            shown_by={
                "adds up": body("""
                    dist.all_reduce(row)
                    return row
                """),
            },
        ),
    ),
    also_wrong={
        "gathers everything": Wrong(
            body("""
                rows = [torch.empty_like(row) for _ in range(world_size)]
                dist.all_gather(rows, row)
                return torch.stack(rows)[:, rank]
            """),
            says="forbidden: all_gather",
        ),
        "gathers everything by a name of its own": Wrong(
            whole("""
                from torch.distributed import all_gather_into_tensor as collect


                def my_column(row):
                    rows = torch.empty(world_size * world_size, device=device)
                    collect(rows, row)
                    return rows.view(world_size, -1)[:, rank]
            """),
            says="forbidden: all_gather",
        ),
        "gathers everything by a functional collective": Wrong(
            whole("""
                import torch.distributed._functional_collectives as functional


                def my_column(row):
                    rows = torch.ops._c10d_functional.all_gather_into_tensor(
                        row, world_size, dist.group.WORLD.group_name
                    )
                    rows = torch.ops._c10d_functional.wait_tensor(rows)
                    return rows.view(world_size, -1)[:, rank]
            """),
            says="forbidden: all_gather",
        ),
        "gathers everything by the group's method": Wrong(
            body("""
                rows = [torch.empty_like(row) for _ in range(world_size)]
                dist.group.WORLD.allgather([rows], [row]).wait()
                return torch.stack(rows)[:, rank]
            """),
            says="forbidden: all_gather",
        ),
    },
    another=body("""
        pieces = [torch.empty(1, device=device) for _ in range(world_size)]
        dist.all_to_all(pieces, list(row.split(1)))
        return torch.cat(pieces)
    """),
    hints=(
        "Rank i has piece j for rank j. Which of the nine collectives takes it there?",
        "dist.all_to_all_single(output, input) cuts its input into one piece a rank.",
        "column = torch.empty_like(row); then dist.all_to_all_single(column, row).",
    ),
)
