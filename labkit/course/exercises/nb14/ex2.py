"""Exercise 14-2: predict the seconds of a ring all-reduce from α and β."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body
from ...exercise import Exercise, Here, Mistake, Wrong
from ...mistakes import When, would_give
from .ring_cost import ALPHA, BETA, ring

#: (ranks, bytes of the tensor), with messages of 20 µs and 1 GB/s.
RINGS = ((2, 1000), (3, 1000), (4, 10**6), (64, 4096), (1024, 10**9))


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(n, size, ALPHA, BETA) for n, size in RINGS]


def expected() -> list[float]:
    return [ring(n, size, ALPHA, BETA) for n, size in RINGS]


def _ring(wrong: Callable[[int, int], float]) -> When:
    return would_give(lambda _: [wrong(n, size) for n, size in RINGS])


EXERCISE = Exercise(
    id="14-2",
    title="The time of a ring",
    answer="ring_time",
    trial=trial,
    expected=expected,
    entries=tuple(f"ring_time({n}, {size}, {ALPHA}, {BETA})" for n, size in RINGS),
    where="notebook",
    mistakes=(
        Mistake(
            "You count half of the steps: there are n - 1 to add up, and n - 1 more to pass the "
            "sums on.",
            when=_ring(lambda n, size: ring(n, size, ALPHA, BETA) / 2),
            shown_by={"half of it": body("return (n - 1) * (alpha + size / n * beta)")},
        ),
        Mistake(
            "You send the whole tensor in every step. The ring sends one chunk, 1/n of it.",
            when=_ring(lambda n, size: 2 * (n - 1) * (ALPHA + size * BETA)),
            shown_by={"whole tensors": body("return 2 * (n - 1) * (alpha + size * beta)")},
        ),
        Mistake(
            "You pay α once. Every step is a message, and every message costs α.",
            when=_ring(lambda n, size: ALPHA + 2 * (n - 1) / n * size * BETA),
            shown_by={"α once": body("return alpha + 2 * (n - 1) / n * size * beta")},
        ),
        Mistake(
            "You count two steps too many: in each half, a chunk makes n - 1 hops to visit n "
            "ranks.",
            when=_ring(lambda n, size: 2 * n * (ALPHA + size / n * BETA)),
            shown_by={"n steps": body("return 2 * n * (alpha + size / n * beta)")},
        ),
        Mistake(
            "You add up what all ranks send. They send at the same time: count one rank's steps.",
            when=_ring(lambda n, size: n * ring(n, size, ALPHA, BETA)),
            shown_by={
                "all ranks' messages": body("return n * 2 * (n - 1) * (alpha + size / n * beta)")
            },
        ),
    ),
    also_wrong={
        "returns nothing": Wrong(body("2 * (n - 1) * (alpha + size / n * beta)"), says="nothing"),
    },
    another=body("""
        chunk = size / n
        return sum(alpha + beta * chunk for _ in range(2 * n - 2))
    """),
    hints=(
        "How many steps are there, and how many bytes does a rank send in one of them?",
        "A step is one message of size / n bytes, which takes α + β · size / n.",
        "Each half of the ring takes n - 1 such steps, one after another.",
    ),
)
