"""Exercise 25-1: predict what n buckets cost a backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated
from ...slips import Formula

#: n, size, compute, alpha, beta: by turns the network and the backward pass are the bottleneck.
CASES = (
    (1, 8, 10.0, 1.0, 0.125),
    (2, 8, 10.0, 1.0, 0.125),
    (4, 16, 10.0, 0.5, 0.75),
    (4, 16, 4.0, 0.0, 0.5),
    (16, 32, 2.5, 1.0, 0.0625),
    (8, 64, 4.0, 0.0625, 0.0625),
    (3, 0, 9.0, 0.25, 0.5),
)
#: What an answer is called with.
Overhead = Callable[[int, float, float, float, float], float]


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(*case) for case in CASES]


def overhead(n: int, size: float, compute: float, alpha: float, beta: float) -> float:
    """Make one bucket after the other become ready, and wait for the network."""
    free = 0.0
    for k in range(1, n + 1):
        free = max(free, k * compute / n) + alpha + beta * size / n
    return free - compute


def expected() -> list[float]:
    return [overhead(*case) for case in CASES]


def _gives(formula: Overhead) -> Predicate:
    return simulated(lambda n: [formula(*case) for case in CASES])


EXERCISE = Exercise(
    id="25-1",
    title="The bucket equation",
    answer="overhead",
    trial=trial,
    expected=expected,
    formula=Formula(
        "call = alpha + beta * size / n\nmax(compute + call, compute / n + n * call) - compute",
        "n size compute alpha beta",
        lambda _: CASES,
    ),
    entries=tuple(
        f"overhead({n}, size={size:g}, compute={compute:g}, alpha={alpha:g}, beta={beta:g})"
        for n, size, compute, alpha, beta in CASES
    ),
    where="notebook",
    mistakes=(
        Mistake(
            "You let every all-reduce wait for the end of the backward pass. A bucket's all-reduce "
            "starts as soon as the bucket is ready, while the next one is computed.",
            when=_gives(lambda n, s, c, a, b: n * a + b * s),
        ),
        Mistake(
            "That is the last bucket's all-reduce alone. It is right while the network keeps "
            "up; if a bucket takes longer to send than to compute, the all-reduces queue.",
            when=_gives(lambda n, s, c, a, b: a + b * s / n),
        ),
        Mistake(
            "You have the case of a busy network only. If it keeps up with the backward pass, the "
            "last all-reduce starts when the last bucket is ready, not before: the larger of the "
            "two times counts.",
            when=_gives(lambda n, s, c, a, b: c / n + n * a + b * s - c)
            | _gives(lambda n, s, c, a, b: max(0.0, c / n + n * a + b * s - c)),
        ),
        Mistake(
            "n · α + β · size / n holds if computing takes as long as sending, compute = β · size. "
            "Here compute may be anything.",
            when=_gives(lambda n, s, c, a, b: n * a + b * s / n),
        ),
        Mistake(
            "You pay α once. Each of the n all-reduces costs it.",
            when=_gives(lambda n, s, c, a, b: overhead(n, s, c, a / n, b)),
        ),
        Mistake(
            "You subtract all of computing from all of sending. The first bucket cannot be sent "
            "before compute / n, and the last one not before computing has ended.",
            when=_gives(lambda n, s, c, a, b: n * a + b * s - c)
            | _gives(lambda n, s, c, a, b: max(0.0, n * a + b * s - c)),
        ),
    ),
    hints=(
        "Draw two timelines: on one the buckets become ready, on the other the network sends "
        "them, one at a time. When does the last one arrive?",
        "Either the network keeps up: then only the last bucket is sent after compute. Or it is "
        "the bottleneck: then it sends without a break from the moment when the first bucket is "
        "ready.",
        "One call takes alpha + beta * size / n. In the first case the end is compute plus one "
        "call, in the second the first bucket's compute / n plus n calls. The later end counts; "
        "subtract compute.",
    ),
)
