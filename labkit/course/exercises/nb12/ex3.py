"""Exercise 12-3: bound the speed-up of threads that share one interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated
from ...slips import Formula

#: (threads, microseconds with the GIL, microseconds without it): Python limits, or the threads do,
#: or both at the same point; one thread; no Python at all.
CASES = ((2, 10, 5), (4, 10, 10), (8, 10, 30), (2, 10, 90), (4, 5, 15), (1, 20, 3), (3, 0, 7))


def trial(answer: Callable[[int, float, float], Any], here: Here) -> list[Any]:
    return [answer(*case) for case in CASES]


def _best(k: int, python: float, native: float) -> float:
    return min(k, (python + native) / python) if python else float(k)


def expected() -> list[float]:
    return [_best(*case) for case in CASES]


def _gives(simulate: Callable[[int, float, float], float]) -> Predicate:
    return simulated(lambda n: [simulate(*case) for case in CASES])


EXERCISE = Exercise(
    id="12-3",
    title="How many threads pay?",
    answer="speedup",
    trial=trial,
    expected=expected,
    formula=Formula(
        "min(k, (python + native) / python) if python else k",
        "k python native",
        lambda n: CASES,
    ),
    entries=tuple(f"speedup{case}" for case in CASES),
    where="notebook",
    mistakes=(
        Mistake(
            "k threads are k times as fast only if they never wait for the GIL. Take the Python "
            "of all operations into account: it runs one after the other.",
            when=_gives(lambda k, python, native: float(k)),
        ),
        Mistake(
            "It divides by zero where an operation needs no Python at all: then only the number of "
            "threads is a limit.",
            raises=r"^ZeroDivisionError",
        ),
        Mistake(
            "That is Amdahl's law: it lets no thread compute while another one runs Python. Under "
            "the GIL it can: only Python and Python exclude each other.",
            when=_gives(lambda k, python, native: (python + native) / (python + native / k)),
        ),
        Mistake(
            "More than k: k threads on k cores are never more than k times as fast as one.",
            when=lambda yours, expected, n: any(
                isinstance(s, int | float) and s > k * 1.001
                for s, (k, _, _) in zip(yours, CASES, strict=True)
            ),
        ),
    ),
    hints=(
        "Let k threads do k operations. How long does one thread need for all of them? How long do "
        "the k threads need at least?",
        "Two limits: the Python of k operations takes k * python, one after the other; and no "
        "thread needs less than python + native for its own. The larger time counts.",
        "The speed-up is the smaller of two numbers: k, and the time of an operation divided by "
        "its share that needs the GIL. Think of python = 0.",
    ),
)
