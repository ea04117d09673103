"""Exercise 00-1: name the next rank of the ring: the neighbour of the last one is rank 0."""

from __future__ import annotations

from collections.abc import Callable

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake, Wrong


def trial(answer: Callable[[], int], here: Here) -> int:
    """Ask for the neighbour."""
    return answer()


def expected(world_size: int) -> list[int]:
    """Count on by one, and round at the end."""
    return [(r + 1) % world_size for r in range(world_size)]


EXERCISE = Exercise(
    id="00-1",
    title="Name your neighbour",
    answer="neighbour",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "The last rank names a rank that does not exist: after the last one it goes on "
            "with rank 0.",
            when=lambda yours, expected, n: yours == [r + 1 for r in range(n)],
            shown_by={"goes past the last rank": body("return rank + 1")},
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
            shown_by={"takes the remainder first": edit("(rank + 1)", "rank")},
        ),
    ),
    also_wrong={
        "prints instead": Wrong(body("print((rank + 1) % world_size)"), says="nothing"),
    },
    another=body("return 0 if rank == world_size - 1 else rank + 1"),
    hints=(
        "Each rank knows its own number as rank. What is the next one's?",
        "rank + 1 is right for all ranks but the last. Its neighbour is rank 0.",
        "The remainder does that: (rank + 1) % world_size.",
    ),
)
