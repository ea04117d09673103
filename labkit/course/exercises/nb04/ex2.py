"""Exercise 04-2: number the processes of nodes of different size, as a launcher does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated

#: What is asked: a rank, and the numbers of processes on the nodes.
ASKED: tuple[tuple[int, tuple[int, ...]], ...] = (
    (0, (3,)),
    (3, (2, 2)),
    (3, (3, 4)),
    (6, (3, 4)),
    (2, (1, 1, 1)),
    (5, (1, 4, 2)),
    (4, (4, 1, 3)),
)
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def trial(answer: Callable[[int, list[int]], dict[str, str]], here: Here) -> list[Any]:
    found: list[Any] = []
    for rank, sizes in ASKED:
        given = list(sizes)
        numbers = answer(rank, given)
        changed = given != list(sizes)
        found.append(f"changed sizes to {given}" if changed else numbers)
    return found


def numbers(rank: int, sizes: tuple[int, ...]) -> dict[str, int]:
    """Return the four numbers of one process, counting one process after another."""
    places = [(node, local) for node, size in enumerate(sizes) for local in range(size)]
    node, local = places[rank]
    return dict(zip(NAMES, (rank, len(places), local, sizes[node]), strict=True))


def expected() -> list[dict[str, str]]:
    return _texts()


def _texts(**changes: Callable[[int, tuple[int, ...]], int]) -> list[dict[str, str]]:
    """Return all answers, in which some numbers may be counted in another way."""
    return [
        {
            name: str(changes[name](rank, sizes) if name in changes else number)
            for name, number in numbers(rank, sizes).items()
        }
        for rank, sizes in ASKED
    ]


def _with(**changes: Callable[[int, tuple[int, ...]], int]) -> Predicate:
    """Return the predicate of answers in which some numbers are counted in another way."""
    return simulated(lambda n: _texts(**changes))


EXERCISE = Exercise(
    id="04-2",
    title="Number the processes",
    answer="numbers_of",
    trial=trial,
    expected=expected,
    where="notebook",
    entries=tuple(f"numbers_of({rank}, {list(sizes)})" for rank, sizes in ASKED),
    mistakes=(
        Mistake(
            "The values are numbers. Environment variables are text: wrap each one in str(…).",
            when=lambda yours, expected, n: any(
                isinstance(value, int) for found in yours for value in found.values()
            ),
        ),
        Mistake(
            "You divide by the size of node 0, as if all nodes were equal. Subtract the nodes' "
            "sizes from the rank, one after the other.",
            when=_with(LOCAL_RANK=lambda rank, sizes: rank % sizes[0]),
        ),
        Mistake(
            "LOCAL_RANK counts from 0 on every node: it is the rank minus the number of processes "
            "on the nodes before.",
            when=_with(LOCAL_RANK=lambda rank, sizes: rank),
        ),
        Mistake(
            "WORLD_SIZE counts the processes of all nodes, and not the nodes: sum(sizes).",
            when=_with(WORLD_SIZE=lambda rank, sizes: len(sizes)),
        ),
        Mistake(
            "LOCAL_WORLD_SIZE is the size of the process's own node, not always that of node 0.",
            when=_with(LOCAL_WORLD_SIZE=lambda rank, sizes: sizes[0]),
        ),
        Mistake(
            "The list that was passed has changed: work on a copy, or only read it.",
            when=lambda yours, expected, n: any(
                str(found).startswith("changed sizes") for found in yours
            ),
        ),
        Mistake(
            "You count the first rank of a node as one more on the node before: a node of 3 has "
            "the local ranks 0, 1 and 2.",
            when=_with(
                LOCAL_RANK=lambda rank, sizes: _one_too_far(rank, sizes)[0],
                LOCAL_WORLD_SIZE=lambda rank, sizes: _one_too_far(rank, sizes)[1],
            ),
        ),
    ),
    hints=(
        "RANK and WORLD_SIZE follow from the arguments at once. For the other two, find out on "
        "which node the rank is.",
        "Start with local_rank = rank. As long as it is too large for the node, go on to the next "
        "one.",
        "While local_rank is not smaller than the size of the node, subtract that size and go on "
        "to the next node. What is left is the local rank, and the size of that node is the other "
        "number.",
    ),
)


def _one_too_far(rank: int, sizes: tuple[int, ...]) -> tuple[int, int]:
    """Return local rank and size for those that leave a node one process too late."""
    node = 0
    while rank > sizes[node]:
        rank -= sizes[node]
        node += 1
    return rank, sizes[node]
