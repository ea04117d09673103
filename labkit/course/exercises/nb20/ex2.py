"""Exercise 20-2: predict an all-reduce on more ranks from points measured on a few."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....figures.costs import AlphaBeta, fit_alpha_beta
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When, simulated
from ...slips import Formula
from .ring_cost import ring

#: α in seconds, β in seconds per byte, n, ranks, bytes; and sizes that were measured.
CASES = (
    (1e-4, 1e-9, 2, 4, 2**20, (256, 2**24, 2**12)),
    (2e-5, 1e-10, 4, 1024, 10**9, (10**6, 10**8)),
    (5e-5, 2e-9, 8, 3, 1000, (2**10, 2**16, 2**22, 2**19)),
    (3e-6, 4e-11, 3, 3, 5 * 10**7, (10**5, 10**6, 10**7)),
)

Forecast = Callable[[Mapping[int, float], int, int, float], float]


def _points(alpha: float, beta: float, n: int, sizes: tuple[int, ...]) -> dict[int, float]:
    return {size: ring(n, size, alpha, beta) for size in sizes}


def _play(forecast: Forecast) -> list[float]:
    return [
        forecast(_points(alpha, beta, n, sizes), n, ranks, size)
        for alpha, beta, n, ranks, size, sizes in CASES
    ]


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return _play(answer)


def expected() -> list[float]:
    return [ring(ranks, size, alpha, beta) for alpha, beta, _, ranks, size, _ in CASES]


def line(points: Mapping[int, float]) -> AlphaBeta:
    return fit_alpha_beta(list(points), list(points.values()))


def _gives(wrong: Callable[[AlphaBeta, int, int, float], float]) -> When:
    """Return the predicate of a mistake, from the line through the points."""
    return simulated(
        lambda _: _play(lambda points, n, ranks, size: wrong(line(points), n, ranks, size))
    )


EXERCISE = Exercise(
    id="20-2",
    title="Predict from your points",
    answer="forecast",
    trial=trial,
    expected=expected,
    formula=Formula(
        "alpha = line.alpha / (2 * (n - 1))\n"
        "beta = line.beta * n / (2 * (n - 1))\n"
        "2 * (ranks - 1) * (alpha + beta * size / ranks)",
        "line n ranks size",
        lambda _: [
            (line(_points(alpha, beta, n, sizes)), n, ranks, size)
            for alpha, beta, n, ranks, size, sizes in CASES
        ],
    ),
    entries=tuple(
        f"{ranks} ranks, {size} bytes, from {len(sizes)} points on {n} ranks"
        for _, _, n, ranks, size, sizes in CASES
    ),
    where="notebook",
    mistakes=(
        Mistake(
            "That is the line through the points: it predicts the size, but still for n ranks.",
            when=_gives(lambda f, n, ranks, size: f.seconds(size)),
        ),
        Mistake(
            "You take the α and β of the line for those of one message. The line is that of a "
            "whole all-reduce on n ranks, which has 2(n - 1) messages, one after the other.",
            when=_gives(lambda f, n, ranks, size: ring(ranks, size, f.alpha, f.beta)),
        ),
        Mistake(
            "You multiply the whole time by the ratio of the steps. That is right for α; "
            "but a step on `ranks` ranks has size / ranks bytes, not size / n.",
            when=_gives(lambda f, n, ranks, size: f.seconds(size) * (ranks - 1) / (n - 1)),
        ),
        Mistake(
            "You multiply the time by ranks / n. A ring's time does not grow like that: it has "
            "2(ranks - 1) steps, each with size / ranks bytes.",
            when=_gives(lambda f, n, ranks, size: f.seconds(size) * ranks / n),
        ),
    ),
    hints=(
        "Two halves: from the line to the α and β of one message; from those to the other ring.",
        "On n ranks the time is 2(n - 1)·(α + β·S/n). So the line's floor is 2(n - 1)·α. What is "
        "its slope?",
        "Divide the line's α by 2(n - 1) and its β by 2(n - 1)/n; then write the ring's time for "
        "`ranks` and `size`.",
    ),
)
