"""Exercise 01-5: fit the α–β cost of a message to two measured times."""

from __future__ import annotations

from collections.abc import Callable

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake

#: Two sizes in bytes, and the α and β that they are timed with: all exact in floating point.
SIZES = (1024, 1048576)
ALPHA, BETA = 2.0**-14, 2.0**-31


def trial(
    answer: Callable[[float, float, float, float], tuple[float, float]], here: Here
) -> list[float]:
    """Fit two points; return α in µs and 1/β in GB/s, as people say them."""
    small, large = SIZES
    alpha, beta = answer(small, ALPHA + BETA * small, large, ALPHA + BETA * large)
    return [1e6 * alpha, 1e-9 / beta if beta else 0.0]


def expected() -> list[float]:
    return [1e6 * ALPHA, 1e-9 / BETA]


def _near(value: float, other: float) -> bool:
    return abs(value - other) <= 1e-6 * abs(other)


EXERCISE = Exercise(
    id="01-5",
    title="Find α and β",
    answer="alpha_beta",
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "Both numbers are there, in the wrong order: α comes first.",
            when=lambda yours, expected, n: (
                _near(yours[0], 1e6 * BETA) and _near(yours[1], 1e-9 / ALPHA)
            ),
            shown_by={
                "swaps the two": edit("return t1 - beta * n1, beta", "return beta, t1 - beta * n1")
            },
        ),
        Mistake(
            "Your β is the time of a byte if calls cost nothing. It is how much *longer* the "
            "large message takes, for each byte that it has more.",
            when=lambda yours, expected, n: _near(
                yours[1], 1e-9 * SIZES[1] / (ALPHA + BETA * SIZES[1])
            ),
            shown_by={
                "divides time by size": edit("beta = (t2 - t1) / (n2 - n1)", "beta = t2 / n2")
            },
        ),
        Mistake(
            "Your β is a rate, bytes a second: turn it round, it is seconds a byte.",
            when=lambda yours, expected, n: _near(yours[1], 1e-9 * BETA),
            shown_by={
                "takes the rate": edit(
                    "beta = (t2 - t1) / (n2 - n1)",
                    "beta = (n2 - n1) / (t2 - t1)",
                    "beta * n1",
                    "n1 / beta",
                )
            },
        ),
        Mistake(
            "Your α is the whole time of the small message: take off what its bytes cost.",
            when=lambda yours, expected, n: _near(yours[0], 1e6 * (ALPHA + BETA * SIZES[0])),
            shown_by={"takes the small message for α": body("return t1, (t2 - t1) / (n2 - n1)")},
        ),
    ),
    another=body("""
        alpha = (t1 * n2 - t2 * n1) / (n2 - n1)
        return alpha, (t2 - alpha) / n2
    """),
    hints=(
        "Two points, one line: β is its slope, α is its height at zero.",
        "β is the difference of the times divided by the difference of the sizes.",
        "beta = (t2 - t1) / (n2 - n1), and alpha is what is left of t1: t1 - beta * n1.",
    ),
)
