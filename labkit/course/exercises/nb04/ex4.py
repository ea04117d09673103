"""Exercise 04-4: form the groups inside nodes and across them, for nodes of different size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, every_rank, rank_simulated, some_rank

Groups = list[list[int]]
NO_GROUP, NO_MEMBER = "no group", "a group that this rank is not in"


def cases(world_size: int) -> list[list[int]]:
    """Return the numbers of processes on the nodes: of equal size if there are four, then not."""
    return [
        [size for size in sizes if size > 0]
        for sizes in ([2, world_size - 2], [1, world_size - 2, 1])
    ]


def trial(answer: Callable[[list[int]], Sequence[Any]], here: Here) -> dict[str, Any]:
    """Sum over both groups in each case; return who was in the sums, and count the groups."""
    found: dict[str, Any] = {}
    for sizes in cases(here.world_size):
        with _counted() as made:
            row, column = [*answer(list(sizes)), None, None][:2]
        found[str(sizes)] = {
            "row": _summed(row, here),
            "column": _summed(column, here),
            "groups made": len(made),
        }
    return found


@contextmanager
def _counted() -> Iterator[list[Any]]:
    """Keep the groups that are made meanwhile."""
    made: list[Any] = []
    original = dist.new_group

    def new_group(*args: Any, **named: Any) -> Any:
        made.append(original(*args, **named))
        return made[-1]

    with mock.patch.object(dist, "new_group", new_group):
        yield made


def _summed(group: Any, here: Here) -> Any:
    """Return the ranks that take part in a sum over a group: a power of two tells who did."""
    if group is None:
        return NO_GROUP
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        return NO_MEMBER
    x = torch.tensor([2**here.rank], device=here.device)
    dist.all_reduce(x, group=group)
    return [rank for rank in range(here.world_size) if int(x.item()) >> rank & 1]


def rows(sizes: Sequence[int]) -> Groups:
    """Return the ranks of each node, which are consecutive."""
    return [list(range(sum(sizes[:node]), sum(sizes[: node + 1]))) for node in range(len(sizes))]


def columns(lines: Groups) -> Groups:
    """Return the ranks with each place in their row."""
    return [
        [line[place] for line in lines if place < len(line)]
        for place in range(max(map(len, lines)))
    ]


def _of(rank: int, groups: Groups) -> Any:
    return next((ranks for ranks in groups if rank in ranks), NO_GROUP)


def _found(
    rank: int, world_size: int, form: Callable[[Sequence[int]], tuple[Groups, Groups]]
) -> dict[str, Any]:
    """Return what a rank finds, if ``form(sizes)`` gives the rows and columns of each case."""
    return {
        str(sizes): {
            "row": _of(rank, form(sizes)[0]),
            "column": _of(rank, form(sizes)[1]),
            "groups made": len(sizes) + max(sizes),
        }
        for sizes in cases(world_size)
    }


def _right(sizes: Sequence[int]) -> tuple[Groups, Groups]:
    return rows(sizes), columns(rows(sizes))


def expected(world_size: int) -> list[dict[str, Any]]:
    return [_found(rank, world_size, _right) for rank in range(world_size)]


def _sums(found: dict[str, Any]) -> list[Any]:
    """Return the sums of a rank, without the numbers of groups."""
    return [case[which] for case in found.values() for which in ("row", "column")]


def _gives(form: Callable[[Sequence[int]], tuple[Groups, Groups]]) -> Predicate:
    """Return the predicate of ranks whose sums are those over the groups of ``form``."""
    return rank_simulated(lambda rank, n: _sums(_found(rank, n, form)), part=_sums)


def _made(compare: Callable[[int, int], bool]) -> Callable[[Any, Any], bool]:
    """Return whether the numbers of groups compare so in a case."""
    return lambda mine, its: any(
        compare(mine[case]["groups made"], its[case]["groups made"]) for case in its
    )


EXERCISE = Exercise(
    id="04-4",
    title="Form groups that a mesh cannot",
    answer="row_and_column",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "The two groups are exchanged: return the row, which is this rank's node, then the "
            "column.",
            when=_gives(lambda sizes: _right(sizes)[::-1]),
        ),
        Mistake(
            "A rank has no column, because zip(*rows) ends with the shortest row. For column k, "
            "take row[k] of the rows that are long enough.",
            when=_gives(lambda sizes: (rows(sizes), columns(rows(sizes))[: min(sizes)])),
        ),
        Mistake(
            "Each rank makes only the groups that it is in. Every rank has to call new_group for "
            "every row and every column, in the same order.",
            when=some_rank(_made(int.__lt__)),
            stuck=r"made the group of|new_group|different groups",
        ),
        Mistake(
            "A rank keeps a group that it is not in: for a rank that is no member, new_group "
            "returns a mere placeholder. Keep the result only if the rank is among the ranks of "
            "the group.",
            when=some_rank(lambda mine, its: NO_MEMBER in _sums(mine)),
        ),
        Mistake(
            "Both groups are the row. A column has the ranks with the same place on their nodes.",
            when=_gives(lambda sizes: (rows(sizes), rows(sizes))),
        ),
        Mistake(
            "The sums are right, but there are more groups than rows and columns: make each of "
            "them once.",
            when=every_rank(lambda mine, its: _sums(mine) == _sums(its))
            & some_rank(_made(int.__gt__)),
        ),
    ),
    hints=(
        "Write down the rows first: which ranks are on each node? Then the columns: which ranks "
        "are in place k of their rows?",
        "Every rank goes through all rows and all columns, calls new_group for each, and keeps the "
        "two groups that it is a member of.",
        "A column is [row[k] for row in rows if k < len(row)], for k up to max(sizes) - 1. In the "
        "loop: group = dist.new_group(ranks), and append it to a list if rank in ranks.",
    ),
)
