"""Exercise 15-2: sum along the rows and columns of a grid of ranks, in sub-groups that all ranks
form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake


def grid_shape(world_size: int) -> tuple[int, int]:
    """Return rows and columns of the squarest grid with no more rows than columns."""
    rows = next(r for r in range(int(world_size**0.5), 0, -1) if world_size % r == 0)
    return rows, world_size // rows


def trial(answer: Callable[[torch.Tensor, int, int], Sequence[Any]], here: Here) -> list[float]:
    """Sum powers of two over row and column: the sum tells who was in it."""
    rows, columns = grid_shape(here.world_size)
    row_sum, column_sum = answer(torch.tensor([2.0**here.rank]), rows, columns)
    return [float(row_sum), float(column_sum)]


def expected(world_size: int) -> list[list[float]]:
    """Add up in one process."""
    rows, columns = grid_shape(world_size)
    held = torch.tensor([2.0**rank for rank in range(world_size)]).reshape(rows, columns)
    return [
        [held[rank // columns].sum().item(), held[:, rank % columns].sum().item()]
        for rank in range(world_size)
    ]


def _everywhere(yours: Sequence[Any], test: Callable[[list[float], int], bool]) -> bool:
    return all(isinstance(v, list) and len(v) == 2 and test(v, r) for r, v in enumerate(yours))


EXERCISE = Exercise(
    id="15-2",
    title="Sum over rows and columns",
    answer="row_and_column_sums",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "You sum over the whole world: hand the sub-group to all_reduce with group=.",
            when=lambda yours, expected, n: _everywhere(
                yours, lambda v, r: v[0] == 2.0**n - 1 and v != expected[r]
            ),
            shown_by={
                "forgets the group": body("""
                    grid = torch.arange(rows * columns).reshape(rows, columns)
                    sums = []
                    for lines in (grid, grid.T):
                        for line in lines.tolist():
                            group = dist.new_group(line)
                        total = x.clone()
                        dist.all_reduce(total)
                        sums.append(total)
                    return sums
                """),
            },
        ),
        Mistake(
            "The second sum began with the first one's result: all_reduce overwrites its "
            "tensor, so sum a clone of x each time.",
            when=lambda yours, expected, n: (
                _everywhere(yours, lambda v, r: v[0] == expected[r][0] and v[1] == 2.0**n - 1)
                and any(e[1] != 2.0**n - 1 for e in expected)
            ),
            shown_by={
                "sums the sum": body("""
                    grid = torch.arange(rows * columns).reshape(rows, columns)
                    sums = []
                    for lines in (grid, grid.T):
                        for line in lines.tolist():
                            group = dist.new_group(line)
                            if rank in line:
                                dist.all_reduce(x, group=group)
                        sums.append(x.clone())
                    return sums
                """),
            },
        ),
        Mistake(
            "Row and column have changed places: the ranks of a row are neighbours.",
            when=lambda yours, expected, n: (
                _everywhere(yours, lambda v, r: v == expected[r][::-1])
                and any(e[0] != e[1] for e in expected)
            ),
            shown_by={"mixes up rows and columns": edit(", grid.T", ".T, grid")},
        ),
        Mistake(
            "The second sum is that of the row again: the ranks of a column are `columns` apart.",
            when=lambda yours, expected, n: _everywhere(
                yours, lambda v, r: v == [expected[r][0]] * 2
            ),
            shown_by={"takes the row twice": edit("grid.T", "grid")},
        ),
        Mistake(
            "Some ranks kept their own number: in a group that it is not in, a rank gets "
            "nothing. Keep the sum of the group that it is a member of.",
            when=lambda yours, expected, n: any(2.0**r in v for r, v in enumerate(yours)),
            shown_by={
                "keeps the last group's": edit(
                    """
                    group = dist.new_group(line)
                    if rank in line:
                        total = x.clone()
                        dist.all_reduce(total, group=group)
                    """,
                    """
                    total = x.clone()
                    dist.all_reduce(total, group=dist.new_group(line))
                    """,
                ),
            },
        ),
    ),
    another=body("""
        mesh = dist.init_device_mesh("cpu", (rows, columns), mesh_dim_names=("row", "column"))
        sums = []
        for name in ("column", "row"):  # along a row, the column changes
            total = x.clone()
            dist.all_reduce(total, group=mesh.get_group(name))
            sums.append(total)
        return sums
    """),
    hints=(
        "Write the ranks into a grid: torch.arange(rows * columns).reshape(rows, columns). Its "
        "rows are the row groups; the rows of its transpose are the column groups.",
        "Every rank calls new_group for every line, also for those that it is not in, and "
        "sums only in its own.",
        "for line in grid.tolist(): group = dist.new_group(line); if rank in line: clone x and "
        "all_reduce the clone with group=group. Then the same for grid.T.",
    ),
)
