"""Exercise 00-1: name the next rank of the ring: the neighbour of the last one is rank 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit, whole
from ...exercise import Exercise, Here, Mistake, Wrong


def trial(answer: Callable[[], Any], here: Here) -> Any:
    """Ask for the neighbour."""
    return answer()


def expected(world_size: int) -> list[int]:
    """Count on by one, and begin again at the end."""
    return [(r + 1) % world_size for r in range(world_size)]


EXERCISE = Exercise(
    id="00-1",
    title="Name your neighbour",
    answer="neighbour",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "The last rank names a rank that does not exist: after the last one comes rank 0.",
            when=lambda yours, expected, n: yours == [r + 1 for r in range(n)],
            hint="Which ranks are there in a world of four? What is the largest rank + 1?",
            shown_by={
                "goes past the last rank": body("return rank + 1"),
                "asks dist, and goes past the last rank": body("return dist.get_rank() + 1"),
            },
        ),
        Mistake(
            "That is the neighbour on the other side: the next rank is one more, not one less.",
            when=lambda yours, expected, n: (
                yours in ([(r - 1) % n for r in range(n)], [r - 1 for r in range(n)])
            ),
            shown_by={
                "goes down": edit("rank +", "rank -"),
                "goes down and past rank 0": body("return rank - 1"),
            },
        ),
        Mistake(
            "That is the rank itself, not its neighbour.",
            when=lambda yours, expected, n: yours == list(range(n)),
            shown_by={
                "takes the remainder first": body("return rank % world_size"),
                "returns its own rank": body("return rank"),
            },
        ),
        Mistake(
            "You divide by the wrong number: the ranks go from 0 to world_size - 1, so counting "
            "begins again at world_size.",
            when=lambda yours, expected, n: (
                yours
                in (
                    [(r + 1) % (n - 1) for r in range(n)],
                    [(r + 1) % (n + 1) for r in range(n)],
                )
            ),
            shown_by={"stops one too early": edit("% world_size", "% (world_size - 1)")},
        ),
        Mistake(
            "Every rank returns the same number: start from rank, which is different on each.",
            when=lambda yours, expected, n: (
                n > 1 and all(y == yours[0] for y in yours) and isinstance(yours[0], int)
            ),
            shown_by={"gives 1": body("return 1"), "gives the last": body("return world_size - 1")},
        ),
    ),
    also_wrong={
        "writes the number of ranks": Wrong(body("return (rank + 1) % 4"), says="one size"),
        "writes the last rank": Wrong(body("return rank + 1 & 3"), says="one size"),
        "writes a table": Wrong(body("return [1, 2, 3, 0][dist.get_rank()]"), says="one size"),
        "passes it by default": Wrong(
            whole("def neighbour(size=4):\n    return (rank + 1) % size"), says="one size"
        ),
        "prints instead": Wrong(body("print((rank + 1) % world_size)"), says="nothing"),
        "writes it as text": Wrong(body("return str((rank + 1) % world_size)"), says="different"),
    },
    another=body("return 0 if rank == world_size - 1 else rank + 1"),
    hints=(
        "Each rank knows its own number, as rank. Write the results for ranks 0, 1, 2 and 3 below "
        "each other: where does the pattern break?",
        "rank + 1 is right on all ranks but the last. An if helps there, or an operator that "
        "starts again from 0: what is 4 % 4?",
        "You need the remainder of rank + 1 after division by the number of ranks.",
    ),
)
