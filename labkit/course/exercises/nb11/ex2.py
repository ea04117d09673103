"""Exercise 11-2: find how many micro-batches make the bubble of a pipeline small enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When, would_give

#: Stages, and the largest bubble. Powers of two are met exactly, the others never are.
BUBBLES = ((4, 0.5), (4, 0.25), (8, 0.125), (2, 0.5), (3, 0.5), (4, 0.11), (8, 0.3), (1, 0.5))


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Ask for the number of micro-batches in each case."""
    return [answer(p, share) for p, share in BUBBLES]


def _first(enough: Callable[[int, int, float], bool]) -> list[int]:
    """Return the first m that is enough, in each case."""
    return [next(m for m in range(1, 10_000) if enough(m, p, share)) for p, share in BUBBLES]


def expected() -> list[int]:
    """Count up until the bubble is small enough."""
    return _first(lambda m, p, share: (p - 1) / (m + p - 1) <= share)


def _finds(enough: Callable[[int, int, float], bool]) -> When:
    return would_give(lambda n: _first(enough))


def _rounds_down(p: int, share: float) -> int:
    return max(1, math.floor((p - 1) / share - (p - 1)))


EXERCISE = Exercise(
    id="11-2",
    title="Enough micro-batches",
    answer="micro_batches",
    trial=trial,
    expected=expected,
    entries=tuple(f"micro_batches({p}, {share})" for p, share in BUBBLES),
    where="notebook",
    mistakes=(
        Mistake(
            "You divide the idle slots by the m slots of work. The bubble is their share of all "
            "m + p - 1 slots.",
            when=_finds(lambda m, p, share: (p - 1) / m <= share),
            shown_by={"idle by work": edit("(m + p - 1)", "m")},
        ),
        Mistake(
            "You count p idle slots. There are p - 1: the last stage begins p - 1 slots after "
            "the first.",
            when=_finds(lambda m, p, share: p / (m + p) <= share),
            shown_by={"p idle slots": edit("(p - 1) / (m + p - 1)", "p / (m + p)")},
        ),
        Mistake(
            "A bubble of exactly share is small enough: the text says at most, not less than.",
            when=_finds(lambda m, p, share: (p - 1) / (m + p - 1) < share),
            shown_by={"less than": edit("> share", ">= share")},
        ),
        Mistake(
            "With m rounded down, the bubble is a little larger than share: round up.",
            when=would_give(lambda n: [_rounds_down(*case) for case in BUBBLES]),
            shown_by={"rounded down": body("return max(1, int((p - 1) / share - (p - 1)))")},
        ),
    ),
    another=body("""
        import math

        return max(1, math.ceil((p - 1) / share - (p - 1)))
    """),
    hints=(
        "Begin with m = 1, and try one more as long as the bubble is too large.",
        "The bubble of m micro-batches in p stages is (p - 1) / (m + p - 1).",
        "Add 1 to m in a while loop, or solve (p - 1) / (m + p - 1) ≤ share for m and round up. "
        "m is at least 1.",
    ),
)
