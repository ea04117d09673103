"""Exercise 04-4: find the longest wait of a run, which a time limit has to exceed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from statistics import mean
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated

#: What is asked: for each rank the seconds before each of its collectives.
ASKED: tuple[tuple[tuple[float, ...], ...], ...] = (
    ((1.0, 4.0), (3.0, 2.0)),
    ((2.0, 2.0, 2.0), (2.0, 2.0, 2.0)),
    ((1.0, 1.0, 1.0), (1.5, 1.5, 1.5), (1.25, 1.0, 2.0)),
    ((0.5, 90.0, 0.5), (0.25, 0.5, 0.75), (8.0, 0.5, 0.5)),
    ((3.0, 5.0, 70.0),),
    ((0.0, 6.0), (7.5, 7.0), (2.0, 1.0), (7.0, 6.5)),
    ((), ()),
)


def trial(answer: Callable[[list[list[float]]], float], here: Here) -> list[Any]:
    return [answer([list(row) for row in seconds]) for seconds in ASKED]


def _waits(seconds: Sequence[Sequence[float]]) -> list[float]:
    """Return how long the first rank waits for the last one in each collective."""
    return [max(step) - min(step) for step in zip(*seconds, strict=True)]


def expected() -> list[float]:
    return [max(_waits(seconds), default=0.0) for seconds in ASKED]


def _all(seconds: Sequence[Sequence[float]]) -> list[float]:
    return [time for row in seconds for time in row]


def _each(wrong: Callable[[Sequence[Sequence[float]]], Sequence[float]]) -> Predicate:
    """Return the predicate of the largest of ``wrong(seconds)`` for each run."""
    return simulated(lambda n: [max(wrong(seconds), default=0.0) for seconds in ASKED])


EXERCISE = Exercise(
    id="04-4",
    title="Find the longest wait",
    answer="longest_wait",
    trial=trial,
    expected=expected,
    where="notebook",
    entries=tuple(
        "s for " + str([list(row) for row in seconds]).replace(".0", "") for seconds in ASKED
    ),
    mistakes=(
        Mistake(
            "You let delays add up. All ranks leave a collective together, so the next step "
            "begins without a delay.",
            when=_each(lambda seconds: _waits([list(accumulate(row)) for row in seconds])),
        ),
        Mistake(
            "That is the longest time that a rank computes. A rank waits only for the difference "
            "between the last rank's time and its own.",
            when=_each(_all),
        ),
        Mistake(
            "You compare times of different collectives: take the difference within each one.",
            when=_each(lambda seconds: _waits([[time] for time in _all(seconds)])),
        ),
        Mistake(
            "That is the sum of the waits. A time limit starts again with each collective.",
            when=_each(lambda seconds: [sum(_waits(seconds))]),
        ),
        Mistake(
            "You take the difference within each rank, between its collectives. A wait is the "
            "difference between ranks, within one collective: transpose the table with "
            "zip(*seconds).",
            when=_each(lambda seconds: [max(row) - min(row) for row in seconds if row]),
        ),
        Mistake(
            "max has got nothing to choose from. A run may have no collective at all: then nobody "
            "waits, and the answer is 0.0. max takes default=.",
            raises=r"ValueError: max\(\) (arg is an|iterable argument is) empty",
        ),
        Mistake(
            "The rank that waits longest is the first to arrive, the one with the smallest time: "
            "subtract that, not the mean.",
            when=_each(lambda seconds: [max(s) - mean(s) for s in zip(*seconds, strict=True)]),
        ),
    ),
    hints=(
        "In one collective, which rank waits longest, and for which one?",
        "The first rank to arrive waits for the last one. Afterwards all ranks start the next "
        "step together.",
        "zip(*seconds) gives the times of all ranks, one collective after the other. You need the "
        "largest difference in any of them.",
    ),
)
