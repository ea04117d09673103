"""Exercise 05-4: find the longest wait of a run, which a time limit has to exceed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import would_give

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
    """Ask for the longest wait of each run."""
    return [answer([list(row) for row in seconds]) for seconds in ASKED]


def _waits(seconds: tuple[tuple[float, ...], ...]) -> float:
    longest = 0.0
    for step in range(len(seconds[0])):
        times = sorted(row[step] for row in seconds)
        longest = max(longest, times[-1] - times[0])
    return longest


def expected() -> list[float]:
    """Let the last rank of each step release the first."""
    return [_waits(seconds) for seconds in ASKED]


def _all(seconds: tuple[tuple[float, ...], ...]) -> list[float]:
    return [time for row in seconds for time in row]


def _clocks(seconds: tuple[tuple[float, ...], ...]) -> list[list[float]]:
    """Return when each rank would come to each collective if nobody waited."""
    return [[sum(row[: k + 1]) for k in range(len(row))] for row in seconds]


EXERCISE = Exercise(
    id="05-4",
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
            when=would_give(
                lambda n: [_waits(tuple(map(tuple, _clocks(seconds)))) for seconds in ASKED]
            ),
        ),
        Mistake(
            "That is the longest time that a rank computes. A rank waits only for the difference "
            "between the last rank's time and its own.",
            when=would_give(lambda n: [max(_all(seconds), default=0.0) for seconds in ASKED]),
        ),
        Mistake(
            "You compare times of different collectives: take the difference within each one.",
            when=would_give(
                lambda n: [
                    max(_all(seconds), default=0.0) - min(_all(seconds), default=0.0)
                    for seconds in ASKED
                ]
            ),
        ),
        Mistake(
            "That is the sum of the waits. A time limit starts again with each collective.",
            when=would_give(
                lambda n: [
                    sum(max(step) - min(step) for step in zip(*seconds, strict=True))
                    for seconds in ASKED
                ]
            ),
        ),
        Mistake(
            "You take the difference within each rank, between its collectives. A wait is the "
            "difference between ranks, within one collective: transpose the table with "
            "zip(*seconds).",
            when=would_give(
                lambda n: [
                    max((max(row) - min(row) for row in seconds if row), default=0.0)
                    for seconds in ASKED
                ]
            ),
        ),
        Mistake(
            "max has got nothing to choose from. A run may have no collective at all: then nobody "
            "waits, and the answer is 0.0. max takes default=.",
            raises=r"ValueError: max\(\) (arg is an|iterable argument is) empty",
        ),
        Mistake(
            "The rank that waits longest is the first to arrive, the one with the smallest time: "
            "subtract that, not the mean.",
            when=would_give(
                lambda n: [
                    max((max(s) - sum(s) / len(s) for s in zip(*seconds, strict=True)), default=0.0)
                    for seconds in ASKED
                ]
            ),
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
