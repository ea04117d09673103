"""Exercise 14-3: find the size at which a ring and a tree take the same time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When, would_give
from .ring_cost import ALPHA, BETA, ring

CROSSED = (4, 8, 64, 1024)


def crossing(n: int, alpha: float, beta: float) -> float:
    """Return the bytes at which ring and tree cost the same (n a power of two, above 2)."""
    levels = math.log2(n)
    return alpha * (n - 1 - levels) / (beta * (levels - (n - 1) / n))


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(n, ALPHA, BETA) for n in CROSSED]


def expected() -> list[float]:
    return [crossing(n, ALPHA, BETA) for n in CROSSED]


def _crossed(wrong: Callable[[int], float]) -> When:
    return would_give(lambda _: [wrong(n) for n in CROSSED])


def _one_way(n: int) -> float:
    """Cross the ring with a tree that only adds up."""
    levels = math.log2(n)
    return ALPHA * (2 * (n - 1) - levels) / (BETA * (levels - 2 * (n - 1) / n))


def _whole(n: int) -> float:
    """Cross the tree with a ring that sends whole tensors: a negative size."""
    levels = math.log2(n)
    return ALPHA * (n - 1 - levels) / (BETA * (levels - (n - 1)))


EXERCISE = Exercise(
    id="14-3",
    title="Where ring and tree cross",
    answer="crossover",
    trial=trial,
    expected=expected,
    entries=tuple(f"crossover({n}, {ALPHA}, {BETA})" for n in CROSSED),
    where="notebook",
    mistakes=(
        Mistake(
            "These are seconds, the cost at the crossing. Return the size there, in bytes.",
            when=_crossed(lambda n: ring(n, crossing(n, ALPHA, BETA), ALPHA, BETA)),
            shown_by={
                "seconds": body("""
                    levels = log2(n)
                    size = alpha * (n - 1 - levels) / (beta * (levels - (n - 1) / n))
                    return 2 * levels * (alpha + size * beta)
                """),
            },
        ),
        Mistake(
            "Your tree only adds up. It also has to send the sum back down: 2 · log2(n) messages.",
            when=_crossed(_one_way),
            shown_by={
                "one way": body("""
                    levels = log2(n)
                    return alpha * (2 * (n - 1) - levels) / (beta * (levels - 2 * (n - 1) / n))
                """),
            },
        ),
        Mistake(
            "The size is negative, because your ring sends whole tensors. In each step it sends "
            "1/n of the tensor.",
            when=_crossed(_whole),
            shown_by={"whole tensors": edit("(n - 1) / n", "(n - 1)")},
        ),
        Mistake(
            "log is the natural logarithm; a tree of pairs has log2(n) levels.",
            when=_crossed(
                lambda n: ALPHA * (n - 1 - math.log(n)) / (BETA * (math.log(n) - (n - 1) / n))
            ),
            shown_by={"natural logarithm": edit("import log2", "import log", "= log2", "= log")},
        ),
        Mistake(
            "α and β have changed places: the higher the latency, the larger the tensors for "
            "which the tree is faster, so α belongs in the numerator.",
            when=_crossed(lambda n: crossing(n, BETA, ALPHA)),
            shown_by={
                "β over α": body("""
                    levels = log2(n)
                    return beta * (n - 1 - levels) / (alpha * (levels - (n - 1) / n))
                """),
            },
        ),
        Mistake(
            "The fraction is upside down: solve ring = tree for the size once more.",
            when=_crossed(lambda n: 1 / crossing(n, ALPHA, BETA)),
            shown_by={
                "upside down": body("""
                    levels = log2(n)
                    return beta * (levels - (n - 1) / n) / (alpha * (n - 1 - levels))
                """),
            },
        ),
    ),
    another=body("""
        def ring_minus_tree(size):
            ring = 2 * (n - 1) * (alpha + size / n * beta)
            return ring - 2 * log2(n) * (alpha + size * beta)

        low, high = 0.0, 1e12
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if ring_minus_tree(middle) > 0 else (low, middle)
        return low
    """),
    hints=(
        "Set the two times equal, bring everything with the size to one side, and divide.",
        "With L = log2(n), half of the equation is (n - 1)·α + (n - 1)/n·S·β = L·α + L·S·β.",
        "On one side stands α · (n - 1 - L), on the other S · β · (L - (n - 1)/n). Solve for S.",
    ),
)
