"""Exercise 17-3: deal the optimizer's state to the ranks as ZeroRedundancyOptimizer does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...answers import body, edit, whole
from ...exercise import Exercise, Here, Mistake, Wrong
from ...mistakes import When

LOADS = (((40, 10, 10, 10, 10), 4), ((9, 8, 7, 6, 5, 4, 3, 2, 1), 3), ((2, 9, 5, 6, 5, 9), 2))


def trial(answer: Callable[..., Any], here: Here) -> list[list[float]]:
    return [[float(load) for load in answer(list(sizes), n)] for sizes, n in LOADS]


def deal_state(sizes: Sequence[int], n: int) -> list[int]:
    """Deal as ZeroRedundancyOptimizer does: the largest first, each to who has least."""
    loads = [0] * n
    for size in sorted(sizes, reverse=True):
        loads[loads.index(min(loads))] += size
    return loads


def expected() -> list[list[float]]:
    return [[float(load) for load in deal_state(sizes, n)] for sizes, n in LOADS]


def _loads(
    play: Callable[[Sequence[int], int], Sequence[float]],
) -> When:
    def when(yours: Any, expected: Any, _: int) -> bool:
        return bool(yours == [list(map(float, play(sizes, n))) for sizes, n in LOADS])

    return when


def _in_order(sizes: Sequence[int], n: int) -> list[int]:
    loads = [0] * n
    for size in sizes:
        loads[loads.index(min(loads))] += size
    return loads


EXERCISE = Exercise(
    id="17-3",
    title="Deal the optimizer's state",
    answer="deal_state",
    trial=trial,
    expected=expected,
    entries=tuple(f"deal_state({list(sizes)}, {n})" for sizes, n in LOADS),
    where="notebook",
    mistakes=(
        Mistake(
            "You cut parameters into pieces. ZeroRedundancyOptimizer gives every parameter to "
            "one rank, as a whole.",
            when=_loads(lambda sizes, n: [sum(sizes) / n] * n),
            shown_by={"cuts parameters": body("return [sum(sizes) / world_size] * world_size")},
        ),
        Mistake(
            "You go in the order of the model. Begin with the largest: the small ones can then "
            "fill the gaps.",
            when=_loads(_in_order),
            shown_by={
                "in the order of the model": edit(
                    "for size in sorted(sizes, reverse=True):", "for size in sizes:"
                )
            },
        ),
        Mistake(
            "You give them to the ranks in turn. Give each to the rank that has least so far.",
            when=_loads(
                lambda sizes, n: [sum(sorted(sizes, reverse=True)[r::n]) for r in range(n)]
            ),
            shown_by={
                "in turns": body("""
                    ordered = sorted(sizes, reverse=True)
                    return [sum(ordered[r::world_size]) for r in range(world_size)]
                """),
            },
        ),
        Mistake(
            "You give them to the ranks in turn, and in the order of the model. Begin with the "
            "largest, and give each to the rank that has least so far.",
            when=_loads(lambda sizes, n: [sum(sizes[r::n]) for r in range(n)]),
            shown_by={
                "in turns and in order": body(
                    "return [sum(sizes[r::world_size]) for r in range(world_size)]"
                )
            },
        ),
    ),
    also_wrong={
        "from the smallest": Wrong(edit("sizes, reverse=True", "sizes"), says="different"),
    },
    another=whole("""
        import heapq


        def deal_state(sizes, world_size):
            loads = [(0, rank) for rank in range(world_size)]
            for size in sorted(sizes)[::-1]:
                load, rank = heapq.heappop(loads)
                heapq.heappush(loads, (load + size, rank))
            return [load for load, rank in sorted(loads, key=lambda pair: pair[1])]
    """),
    hints=(
        "Keep a list of what each rank has so far, and go through the sizes from large to small.",
        "loads.index(min(loads)) is the first of the ranks that have least so far.",
        "sorted(sizes, reverse=True) goes from large to small. Each size is added to one entry "
        "of the list, and the list is the answer.",
    ),
)
