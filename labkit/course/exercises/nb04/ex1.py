"""Exercise 04-1: divide a batch among the ranks so that nothing is left over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake, Wrong
from ...mistakes import When, would_give

#: Batches that 2, 3, 4 or 8 ranks cannot share evenly, one that some can, and a tiny one.
BATCHES = (128, 130, 7, 3)


def trial(answer: Callable[[int], Any], here: Here) -> list[Any]:
    return [answer(whole) for whole in BATCHES]


def expected(n: int) -> list[list[int]]:
    """Deal each batch like cards and count the hands."""
    return [[len(range(rank, whole, n)) for whole in BATCHES] for rank in range(n)]


def _sizes(size: Callable[[int, int, int], float]) -> When:
    """Return the predicate of ``size(whole, rank, n)`` in place of the right one."""
    return would_give(lambda n: [[size(whole, r, n) for whole in BATCHES] for r in range(n)])


def _all_to(one: int) -> When:
    """Return the predicate of a remainder that goes to one rank."""
    return _sizes(lambda whole, rank, n: whole // n + (whole % n if rank == one else 0))


EXERCISE = Exercise(
    id="04-1",
    title="Lose no image of the batch",
    answer="my_batch_size",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "Every rank takes the same number, rounded down, and no rank takes the remainder: of "
            "130 images on four ranks, two are lost.",
            when=_sizes(lambda whole, rank, n: whole // n),
            shown_by={"rounds down": body("return whole // world_size")},
        ),
        Mistake(
            "Every rank takes the same number, rounded up: together the ranks take more images "
            "than there are.",
            when=_sizes(lambda whole, rank, n: -(-whole // n)),
            shown_by={"rounds up": body("return -(-whole // world_size)")},
        ),
        Mistake(
            "One rank takes the whole remainder. Spread it: each of the first ranks takes one "
            "more image.",
            when=lambda yours, expected, n: any(
                _all_to(rank)(yours, expected, n) for rank in (0, n - 1)
            ),
            shown_by={
                "all of the rest to the last": body("""
                    size = whole // world_size
                    return size if rank < world_size - 1 else whole - size * (world_size - 1)
                """),
                "all of the rest to the first": edit(
                    "rank < whole % world_size", "whole % world_size if rank == 0 else 0"
                ),
            },
        ),
        Mistake(
            "One rank too many takes an extra image. A remainder of 2 is for ranks 0 and 1: rank "
            "< remainder.",
            when=_sizes(lambda whole, rank, n: whole // n + (rank <= whole % n)),
            shown_by={"one rank too many": edit("rank <", "rank <=")},
        ),
        Mistake(
            "The last ranks take the extra images, but the first ranks should.",
            when=_sizes(lambda whole, rank, n: whole // n + (rank >= n - whole % n)),
            shown_by={"from the end": edit("rank <", "rank >= world_size -")},
        ),
        Mistake(
            "A rank takes a whole number of images: / gives a float, // a whole number.",
            when=lambda yours, expected, n: any(
                isinstance(size, float) and size != int(size) for mine in yours for size in mine
            ),
            shown_by={"a fraction": body("return whole / world_size")},
        ),
    ),
    also_wrong={
        "prints it": Wrong(
            body("print(whole // world_size + (rank < whole % world_size))"), says="nothing"
        ),
    },
    another=body("return len(torch.arange(whole).tensor_split(world_size)[rank])"),
    hints=(
        "Every rank takes at least whole // world_size images. How many are left over, and which "
        "ranks take them?",
        "The remainder, whole % world_size, is smaller than the number of ranks: each rank whose "
        "number is below it takes one more image.",
        "return whole // world_size + (1 if rank < … else 0)",
    ),
)
