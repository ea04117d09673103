"""Exercise 01-5: find the α and β of a message from two measured times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compare import number
from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate
from ...slips import Formula

#: Bytes and the α (seconds) and β (seconds per byte) that they are timed with: a slow connection,
#: and numbers that floating point holds exactly. The sizes come in either order, and once there is
#: no latency.
CASES = (
    (1024, 5120, 0.5, 2.0**-9),
    (6144, 2048, 0.25, 2.0**-10),
    (1000, 3000, 0.0, 0.125),
)


def _arguments(case: tuple[int, int, float, float]) -> tuple[float, float, float, float]:
    n1, n2, alpha, beta = case
    return n1, alpha + beta * n1, n2, alpha + beta * n2


def trial(answer: Callable[[float, float, float, float], Any], here: Here) -> list[Any]:
    """Ask for α and β of each case, in seconds and seconds per byte."""
    given = [answer(*_arguments(case)) for case in CASES]
    return [
        [number(part) for part in pair] if isinstance(pair, list | tuple) else pair
        for pair in given
    ]


def expected() -> list[list[float]]:
    return [[alpha, beta] for _, _, alpha, beta in CASES]


def _off(place: int, wrong: Callable[[float, float, float, float], float]) -> Predicate:
    """Return the predicate of a wrong α (place 0) or β (place 1) in the cases with a latency."""

    @Predicate
    def when(yours: Any, expected: Any, n: int) -> bool:
        pairs = zip(yours[:2], CASES[:2], strict=True)
        return all(abs(pair[place] - wrong(*_arguments(case))) < 1e-9 for pair, case in pairs)

    return when


EXERCISE = Exercise(
    id="01-5",
    title="Find α and β",
    answer="alpha_beta",
    trial=trial,
    expected=expected,
    formula=Formula(
        "beta = (t2 - t1) / (n2 - n1)\nt1 - beta * n1, beta",
        "n1 t1 n2 t2",
        lambda n: [_arguments(case) for case in CASES],
    ),
    entries=tuple(
        f"alpha_beta({', '.join(f'{value:g}' for value in _arguments(case))})" for case in CASES
    ),
    where="notebook",
    mistakes=(
        Mistake(
            "Your β is the time per byte of one message alone, as if α were 0. β is the "
            "additional time per additional byte.",
            when=_off(1, lambda n1, t1, n2, t2: t1 / n1) | _off(1, lambda n1, t1, n2, t2: t2 / n2),
        ),
        Mistake(
            "Your β is a rate, in bytes per second, but it has to be in seconds per byte: the "
            "difference of the times is the numerator.",
            when=_off(1, lambda n1, t1, n2, t2: (n2 - n1) / (t2 - t1)),
        ),
        Mistake(
            "Your β has the wrong sign: subtract times and sizes in the same order.",
            when=_off(1, lambda n1, t1, n2, t2: (t1 - t2) / (n2 - n1)),
        ),
        Mistake(
            "Your β is 0 in every case: // and int() round down, and a byte takes far less than a "
            "second.",
            when=lambda yours, expected, n: all(beta == 0 for _, beta in yours),
        ),
        Mistake(
            "Your α is the whole time of a message: subtract the time that its bytes take.",
            when=_off(0, lambda n1, t1, n2, t2: t1)
            | _off(0, lambda n1, t1, n2, t2: t2)
            | _off(0, lambda n1, t1, n2, t2: min(t1, t2)),
        ),
        Mistake(
            "The first message may be the larger one: do not assume that it is the smaller one.",
            when=lambda yours, expected, n: yours[0] == expected[0] and yours[1] != expected[1],
        ),
    ),
    hints=(
        "Two points, one line: β is its slope, α is its height at zero bytes.",
        "How much longer does the larger message take than the smaller one, and how many more "
        "bytes does it have?",
        "Once you know β, only α is unknown in t = α + β·n, for either message.",
    ),
)
