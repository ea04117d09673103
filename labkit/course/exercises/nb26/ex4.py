"""Exercise 26-4: find how many parameter servers send no more per link than a ring does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated
from ...slips import Formula

WORKERS = (2, 3, 4, 8, 64, 1000)


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(workers) for workers in WORKERS]


def _servers(k: int) -> float:
    """Return how many servers it takes: 2kS / s bytes at each, against 4(k - 1)/k S in the ring."""
    return k * k / (2 * (k - 1))


def expected() -> list[int]:
    return [math.ceil(_servers(k)) for k in WORKERS]


def _gives(number: Callable[[int], float]) -> Predicate:
    return simulated(lambda n: [number(k) for k in WORKERS])


EXERCISE = Exercise(
    id="26-4",
    title="How many servers?",
    answer="servers_needed",
    trial=trial,
    expected=expected,
    formula=Formula(
        "ring = 4 * (workers - 1) / workers\nceil(2 * workers / ring)",
        "workers",
        lambda n: [(workers,) for workers in WORKERS],
    ),
    entries=tuple(f"servers_needed({workers})" for workers in WORKERS),
    where="notebook",
    mistakes=(
        Mistake(
            "With the number rounded down, each server still moves more bytes than a rank of the "
            "ring: round up.",
            when=_gives(lambda k: math.floor(_servers(k))),
        ),
        Mistake(
            "You count only one direction of the server: per worker, one tensor comes in and one "
            "goes out.",
            when=_gives(lambda k: math.ceil(_servers(k) / 2)),
        ),
        Mistake(
            "You count only one direction of the ring: its ranks receive as much as they send.",
            when=_gives(lambda k: math.ceil(_servers(k) * 2)),
        ),
        Mistake(
            "It returns None for some numbers of workers.",
            when=lambda yours, expected, n: None in yours,
        ),
        Mistake(
            "That is half as many servers as workers, which would do if a rank of the ring moved "
            "4 S. It moves 4 (workers - 1) / workers · S, a little less, so it takes more servers.",
            when=_gives(lambda k: k // 2) | _gives(lambda k: k / 2) | _gives(lambda k: -(-k // 2)),
        ),
    ),
    hints=(
        "A single server moves 2 · workers tensors. With the weights cut into s parts, each of s "
        "servers moves 1/s of that.",
        "Write down 2 · workers / s ≤ 4 · (workers - 1) / workers, and solve it for s.",
        "s is at least 2 · workers divided by what a rank of the ring moves. math.ceil gives the "
        "smallest whole number that is large enough.",
    ),
)
