"""Exercise 19-1: compute the rank from node, local rank and the sizes of the nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated
from ...slips import Formula

#: Processes on each node. With equal nodes more than one formula is right.
SIZES = ((3, 4), (2, 2), (4, 1, 2))
Rank = Callable[[int, int, Sequence[int]], Any]


def _numbered(rank_of: Rank) -> dict[str, list[Any]]:
    return {
        " + ".join(map(str, sizes)): [
            rank_of(node, local, list(sizes)) for node, k in enumerate(sizes) for local in range(k)
        ]
        for sizes in SIZES
    }


def trial(answer: Rank, here: Here) -> dict[str, list[Any]] | None:
    """Ask for the rank of every process, node by node."""
    numbered = _numbered(answer)
    nothing = all(rank is None for ranks in numbered.values() for rank in ranks)
    return None if nothing else numbered


def expected() -> dict[str, list[int]]:
    """Count through."""
    return {" + ".join(map(str, sizes)): list(range(sum(sizes))) for sizes in SIZES}


def _numbers(rank_of: Rank) -> Predicate:
    return simulated(lambda n: _numbered(rank_of))


EXERCISE = Exercise(
    id="19-1",
    title="Number the ranks",
    answer="rank_of",
    trial=trial,
    expected=expected,
    formula=Formula(
        "sum(sizes[:node_rank]) + local_rank",
        "node_rank local_rank sizes",
        lambda n: [
            (node, local, sizes)
            for sizes in SIZES
            for node, size in enumerate(sizes)
            for local in range(size)
        ],
    ),
    where="notebook",
    mistakes=(
        Mistake(
            "That is the local rank, which begins at 0 again on every node.",
            when=_numbers(lambda node, local, sizes: local),
        ),
        Mistake(
            "You multiply node_rank by the size of the node itself, which is right only if all "
            "nodes are equal. Add up the sizes of the nodes before this one.",
            when=_numbers(lambda node, local, sizes: node * sizes[node] + local),
        ),
        Mistake(
            "You multiply node_rank by the size of the first node, which is right only if all "
            "nodes before this one are as large. Add up their sizes.",
            when=_numbers(lambda node, local, sizes: node * sizes[0] + local),
        ),
        Mistake(
            "len(sizes) is the number of nodes, not of processes on a node.",
            when=_numbers(lambda node, local, sizes: node * len(sizes) + local),
        ),
        Mistake(
            "You count only the node just before this one. Add up the sizes of all nodes before.",
            when=_numbers(lambda node, local, sizes: (sizes[node - 1] if node else 0) + local),
        ),
    ),
    hints=(
        "How many processes are on the nodes before this one?",
        "sizes[:node_rank] are the sizes of the nodes before.",
        "Their sum is the rank of this node's first process, whose local rank is 0.",
    ),
)
