"""Exercise 21-3: from which batch per rank on computing hides the all-reduce."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated
from ...slips import Formula

#: FLOP/s, bytes per second, ranks, bytes per gradient. The second one ends on a whole number.
CASES = (
    (1000.0, 30.0, 4, 4),
    (96.0, 2.0, 4, 2),
    (989e12, 450e9, 8, 2),
    (40e9, 0.7e9, 2, 4),
    (7.0, 11.0, 3, 1),
)
#: What an answer is called with.
Rows = Callable[[float, float, int, int], float]


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(*case) for case in CASES]


def rows(flops: float, bandwidth: float, n: int, gradient: int) -> float:
    """Return where 4 FLOPs per row and parameter take as long as a ring's bytes per parameter."""
    return 2 * (n - 1) / n * gradient / bandwidth * flops / 4


def expected() -> list[int]:
    return [math.ceil(rows(*case)) for case in CASES]


def _gives(formula: Rows, rounded: Callable[[float], float]) -> Predicate:
    return simulated(lambda n: [rounded(formula(*case)) for case in CASES])


def _simulated(formula: Rows) -> Predicate:
    """Return the predicate of another formula than the right one, rounded up or not."""
    return _gives(formula, float) | _gives(formula, math.ceil)


EXERCISE = Exercise(
    id="21-3",
    title="The batch that hides the network",
    answer="rows_to_hide",
    setup="import math",
    trial=trial,
    expected=expected,
    formula=Formula(
        "ceil(2 * (n - 1) / n * gradient_bytes * flops / bandwidth / 4)",
        "flops bandwidth n gradient_bytes",
        lambda _: CASES,
    ),
    entries=tuple(
        f"rows_to_hide({flops:g}, {bandwidth:g}, {n}, {gradient})"
        for flops, bandwidth, n, gradient in CASES
    ),
    where="notebook",
    mistakes=(
        Mistake(
            "You round down or to the nearest number: then the all-reduce takes longer than the "
            "backward pass. Round up.",
            when=_gives(rows, math.floor) | _gives(rows, round),
        ),
        Mistake(
            "You hide the all-reduce behind the whole step, 6 FLOPs per parameter and row. There "
            "is a gradient to send only during backward: 4 of them.",
            when=_simulated(lambda c, w, n, g: rows(c, w, n, g) * 4 / 6),
        ),
        Mistake(
            "You hide it behind 2 FLOPs per parameter and row, which is a forward pass. Backward "
            "has 4: one product for the weights' gradient and one for the inputs'.",
            when=_simulated(lambda c, w, n, g: rows(c, w, n, g) * 2),
        ),
        Mistake(
            "You send each gradient once. A ring's all-reduce is a reduce-scatter and an "
            "all-gather: 2 (n − 1) / n times its bytes.",
            when=_simulated(lambda c, w, n, g: g * c / (4 * w)),
        ),
        Mistake(
            "That is half of it. An all-reduce is a reduce-scatter and an all-gather, and there "
            "are 4 FLOPs per parameter and row in backward.",
            when=_simulated(lambda c, w, n, g: rows(c, w, n, g) / 2),
        ),
        Mistake(
            "You send 2 × the gradient's bytes, which is the limit for many ranks. With n ranks it "
            "is 2 (n − 1) / n ×.",
            when=_simulated(lambda c, w, n, g: 2 * g * c / (4 * w)),
        ),
        Mistake(
            "You take a gradient for 4 bytes. It has gradient_bytes: 2 in bfloat16.",
            when=_simulated(lambda c, w, n, g: rows(c, w, n, 4)),
        ),
        Mistake(
            "flops / bandwidth is the rule for many ranks and two bytes per gradient. In general "
            "the bytes are 2 (n − 1) / n · gradient_bytes, and the FLOPs 4.",
            when=_simulated(lambda c, w, n, g: c / w),
        ),
        Mistake(
            "A rank of the ring sends 2 (n − 1) messages, but each is a chunk, an n-th of the "
            "gradients.",
            when=_simulated(lambda c, w, n, g: n * rows(c, w, n, g)),
        ),
    ),
    hints=(
        "Think of a single parameter: how long does backward compute on it for one row, and how "
        "long is its gradient sent?",
        "Backward has 4 FLOPs per parameter and row, so it takes 4 / flops seconds. In a ring each "
        "rank sends 2 (n − 1) / n times the gradient's bytes.",
        "Divide the seconds of sending by the seconds of a row, and round up. The number of "
        "parameters is in both, so it cancels.",
    ),
)
