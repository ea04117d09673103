"""Exercise 00-3: name the next rank of the ring: the neighbour of the last one is rank 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated


def trial(answer: Callable[[], Any], here: Here) -> Any:
    return answer()


def expected(world_size: int) -> list[int]:
    return [(r + 1) % world_size for r in range(world_size)]


def _each(named: Callable[[int, int], int]) -> Predicate:
    """Return the predicate of ranks that each name ``named(rank, n)``."""
    return simulated(lambda n: [named(r, n) for r in range(n)])


EXERCISE = Exercise(
    id="00-3",
    title="Name your neighbour",
    answer="neighbour",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "The last rank names a rank that does not exist: after the last one comes rank 0.",
            when=_each(lambda r, n: r + 1),
            hint="Which ranks are there in a world of four? What is the largest rank + 1?",
        ),
        Mistake(
            "That is the neighbour on the other side: the next rank is one more, not one less.",
            when=_each(lambda r, n: (r - 1) % n) | _each(lambda r, n: r - 1),
        ),
        Mistake(
            "That is the rank itself, not its neighbour.",
            when=_each(lambda r, n: r),
        ),
        Mistake(
            "You divide by the wrong number: the ranks go from 0 to world_size - 1, so counting "
            "begins again at world_size.",
            when=_each(lambda r, n: (r + 1) % (n + 1)) | _each(lambda r, n: (r + 1) % (n - 1)),
        ),
        Mistake(
            "Every rank returns the same number: start from rank, which is different on each.",
            when=lambda yours, expected, n: (
                n > 1 and all(y == yours[0] for y in yours) and isinstance(yours[0], int)
            ),
        ),
    ),
    hints=(
        "Each rank knows its own number, as rank. Write the results for ranks 0, 1, 2 and 3 below "
        "each other: where does the pattern break?",
        "rank + 1 is right on all ranks but the last. An if helps there, or an operator that "
        "starts again from 0: what is 4 % 4?",
        "You need the remainder of rank + 1 after division by the number of ranks.",
    ),
)
