"""Exercise 23-4: sum along the rows and columns of grids of ranks, in sub-groups that all ranks
form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, every_rank, simulated, some_rank

#: How often one grid is asked for beforehand: groups that each rank has made for itself can find
#: their members once by luck.
AGAIN = 5


def squarest(world_size: int) -> tuple[int, int]:
    """Return rows and columns of the squarest grid with no more rows than columns."""
    rows = next(r for r in range(int(world_size**0.5), 0, -1) if world_size % r == 0)
    return rows, world_size // rows


def grids(world_size: int) -> tuple[tuple[int, int], ...]:
    """Return the grids that are asked for: rows and columns."""
    return (1, world_size), (world_size, 1), squarest(world_size)


def held(rank: int) -> list[int]:
    """Return what a rank holds: a power of two tells who was in a sum."""
    return [2**rank]


def trial(
    answer: Callable[[torch.Tensor, int, int], Sequence[torch.Tensor]], here: Here
) -> list[Any]:
    """Sum in each grid; look at x afterwards, and whether the two sums are two tensors."""
    found: list[Any] = []
    kept, apart = True, True
    for _ in range(AGAIN):
        answer(torch.tensor(held(here.rank), device=here.device), *squarest(here.world_size))
    for rows, columns in grids(here.world_size):
        x = torch.tensor(held(here.rank), device=here.device)
        sums = answer(x, rows, columns)
        if isinstance(sums, torch.Tensor):
            return ["one tensor"] * len(entries(here.world_size))
        row, column = sums
        found += [row.tolist(), column.tolist()]
        kept = kept and x.tolist() == held(here.rank)
        apart = apart and row.data_ptr() != column.data_ptr()
    return [*found, kept, apart]


Lines = list[list[int]]
Grids = Sequence[tuple[int, int]]


def lines(rank: int, shapes: Grids) -> list[Lines]:
    """Return for each grid the ranks of this rank's row and of its column."""
    return [
        [
            [r for r in range(rows * columns) if r // columns == rank // columns],
            [r for r in range(rows * columns) if r % columns == rank % columns],
        ]
        for rows, columns in shapes
    ]


def _sum(ranks: Sequence[int]) -> list[int]:
    return [sum(both) for both in zip(*map(held, ranks), strict=True)]


def _sums(
    world_size: int,
    pick: Callable[[Lines, int], Lines] = lambda both, n: both,
    shapes: Callable[[int], Grids] = grids,
) -> list[Any]:
    """Return for each rank all sums, over the ranks that ``pick(row and column, n)`` gives."""
    return [
        [
            _sum(ranks)
            for both in lines(rank, shapes(world_size))
            for ranks in pick(both, world_size)
        ]
        for rank in range(world_size)
    ]


def expected(world_size: int) -> list[list[Any]]:
    """Add up in one process."""
    return [[*sums, True, True] for sums in _sums(world_size)]


def entries(world_size: int) -> list[str]:
    """Name the sums, and what is looked at afterwards."""
    sums = [
        f"{rows} × {columns}: {what}"
        for rows, columns in grids(world_size)
        for what in ("the row", "the column")
    ]
    return [*sums, "x is as before", "two tensors"]


def _gives(
    pick: Callable[[Lines, int], Lines], shapes: Callable[[int], Grids] = grids
) -> Predicate:
    """Return the predicate of answers that sum over other ranks, into two tensors of their own."""
    return simulated(lambda n: _sums(n, pick, shapes), lambda own: own[:-2])


EXERCISE = Exercise(
    id="23-4",
    title="Sum over rows and columns",
    answer="row_and_column_sums",
    trial=trial,
    expected=expected,
    entries=entries,
    mistakes=(
        Mistake(
            "x has changed: all_reduce overwrites its tensor. Sum a clone of x, and a second "
            "clone for the second sum.",
            when=some_rank(lambda mine, its: mine[-2] is False),
        ),
        Mistake(
            "Both sums are one tensor, and the second sum began with the first one's result: "
            "all_reduce overwrites its tensor. Clone x for each of them.",
            when=some_rank(lambda mine, its: mine[-1] is False),
        ),
        Mistake(
            "You sum over the whole world: all_reduce needs the sub-group as group=.",
            when=_gives(lambda both, n: [list(range(n))] * 2),
        ),
        Mistake(
            "Row and column are swapped: the ranks of a row have consecutive numbers.",
            when=_gives(lambda both, n: both[::-1]),
        ),
        Mistake(
            "Your grid has `rows` columns, as if the two numbers of its shape were swapped: a row "
            "has `columns` ranks, and rank 1 is beside rank 0 if there is more than one column.",
            when=_gives(lambda both, n: both, lambda n: [grid[::-1] for grid in grids(n)]),
        ),
        Mistake(
            "It returns one tensor; two are expected: the sum over the row, then over the column.",
            when=some_rank(lambda mine, its: "one tensor" in mine),
        ),
        Mistake(
            "Both sums are over the row: the ranks of a column are `columns` apart.",
            when=_gives(lambda both, n: [both[0]] * 2),
        ),
        Mistake(
            "Both sums are over the column: the ranks of a row have consecutive numbers.",
            when=_gives(lambda both, n: [both[1]] * 2),
        ),
        Mistake(
            "Every sum is the rank's own x: call all_reduce with the group of the row, and with "
            "that of the column, and return what has come out.",
            when=lambda yours, expected, n: all(
                sums == held(rank) for rank, y in enumerate(yours) for sums in y[:-2]
            ),
        ),
        Mistake(
            "A rank kept the result of a group that it is not in, which is only its own x: keep "
            "the sum of the group that it is a member of.",
            when=lambda yours, expected, n: any(
                sums != right and sums == held(rank)
                for rank, (y, e) in enumerate(zip(yours, expected, strict=True))
                for sums, right in zip(y[:-2], e[:-2], strict=True)
            ),
        ),
        Mistake(
            "Your grid has a fixed shape. It must have `rows` rows and `columns` columns, whatever "
            "these numbers are.",
            when=every_rank(lambda mine, its: mine[4:] == its[4:])
            & some_rank(lambda mine, its: mine[:4] != its[:4]),
        ),
        Mistake(
            "Each rank makes only the groups that it is in. Every rank has to call new_group for "
            "every group, in the same order.",
            stuck=r"made the group of|new_group|different groups",
        ),
    ),
    hints=(
        "Put the ranks into a grid: torch.arange(rows * columns).reshape(rows, columns). Its "
        "rows are the row groups; the rows of its transpose are the column groups.",
        "Every rank calls new_group for every row and column, including those that it is not in, "
        "and sums only in its own.",
        "Two nested loops: over the grid and its transpose, and over the rows of each. Inside: "
        "make the group; if this rank is in it, sum a new clone of x.",
    ),
)
