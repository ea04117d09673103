"""Exercise 06-3: measure a link, then choose the number of buckets for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import cycle

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated
from ...score import Score
from .ex1 import end_of_step

#: Seconds of backward() and bytes of gradients; then α and β of the link, which are not shown:
#: calls cost little, bytes cost most, calls queue up beyond 20 buckets, and calls cost most. No
#: single number of buckets is good for all of them. √(compute / α), which is best if calls queue,
#: is 2 % off on the first and 5 % on the third: β has to be measured, too. On the last, one bucket
#: too few is 6 % off, which is what comes of an α that is counted twice.
STEPS = (
    (0.200, 40e6, 0.00025, 4e-9),
    (0.050, 20e6, 0.0005, 1e-8),
    (0.100, 40e6, 0.002, 1.5e-9),
    (0.0222, 1e6, 0.004, 1e-8),
)
#: Calls that may be measured per link, and how far from the best a choice may be.
CALLS, NEAR = 12, 1.01
BUCKETS = range(1, 257)
#: A measured time is that much too long, in turn; link k begins with the k-th of these. Of three
#: calls one is right, of two not always.
NOISE = (0.8, 0.0, 0.0, 0.4)
GOOD, MANY = f"at most {NEAR:g} × best, {CALLS} calls", f"more than {CALLS} calls measured"

#: What other cells of the notebook define.
SETUP = """
from collections.abc import Callable


def end_of_step(compute, size, buckets, alpha, beta):
    call = alpha + beta * size / buckets
    return max(compute + call, compute / buckets + buckets * call)
"""

Choose = Callable[[Callable[[float], float], float, float], int]


class _Link:
    """A link that tells nothing of itself but how long calls take."""

    def __init__(self, alpha: float, beta: float, noise: int) -> None:
        self.alpha, self.beta, self.calls = alpha, beta, 0
        self.noise = cycle(NOISE[noise:] + NOISE[:noise])

    def seconds(self, nbytes: float) -> float:
        self.calls += 1
        return (self.alpha + self.beta * nbytes) * (1 + next(self.noise))


def _label(step: tuple[float, float, float, float]) -> str:
    """Return what is known of a step: its time in milliseconds, its bytes in MB."""
    return f"{1e3 * step[0]:g} ms, {step[1] / 1e6:g} MB"


def trial(answer: Choose, here: Here | None) -> dict[str, str]:
    return {_label(step): _judged(answer, k, *step) for k, step in enumerate(STEPS)}


def _judged(
    choose: Choose, noise: int, compute: float, size: float, alpha: float, beta: float
) -> str:
    """Say how good a choice is, as the time of the step divided by the best possible one."""
    link = _Link(alpha, beta, noise)
    buckets = choose(link.seconds, compute, size)
    if not isinstance(buckets, int) or buckets < 1:
        return f"not a number of buckets: {buckets!r}"
    if link.calls > CALLS:
        return MANY
    best = min(end_of_step(compute, size, n, alpha, beta) for n in BUCKETS)
    ratio = end_of_step(compute, size, buckets, alpha, beta) / best
    chosen = f"{buckets} bucket{'s'[: buckets > 1]}, {ratio:.3f} × best"
    if ratio > NEAR:
        return chosen
    return Score(GOOD, f"{chosen}, {link.calls} call{'s'[: link.calls != 1]}")


def expected() -> dict[str, str]:
    return {_label(step): Score(GOOD) for step in STEPS}


def _strategy(choose: Choose) -> Predicate:
    """Return the predicate of a way to choose."""
    return simulated(lambda n: trial(choose, None))


def _root(seconds: Callable[[float], float], compute: float, size: float) -> int:
    """Take the number that is best if the calls queue."""
    return max(1, round((compute / seconds(0)) ** 0.5))


def _root_of_size(seconds: Callable[[float], float], compute: float, size: float) -> int:
    """Take as much time for the bytes of a call as for α."""
    alpha = seconds(0)
    return max(1, round(((seconds(size) - alpha) / alpha) ** 0.5))


def _measured(calls: int, *, subtract: bool = True) -> Choose:
    """Return what takes the fastest of so many calls, and may forget to subtract α for β."""

    def choose(seconds: Callable[[float], float], compute: float, size: float) -> int:
        alpha, whole = (min(seconds(nbytes) for _ in range(calls)) for nbytes in (0, size))
        beta = (whole - alpha * subtract) / size
        return min(BUCKETS, key=lambda n: end_of_step(compute, size, n, alpha, beta))

    return choose


def _always_the_same(yours: dict[str, str], expected: dict[str, str], n: int) -> bool:
    """Hold if wherever a choice is not good enough, on two links or more, it is the same number."""
    wrong = [re.match(r"\d+ buckets?,", text) for text in yours.values() if text != GOOD]
    return len(wrong) > 1 and all(wrong) and len({match[0] for match in wrong if match}) == 1


EXERCISE = Exercise(
    id="06-3",
    title="Measure a link and choose the number of buckets",
    answer="choose",
    trial=trial,
    expected=expected,
    setup=SETUP,
    where="notebook",
    mistakes=(
        Mistake(
            "One bucket hides nothing: its call starts when backward() has ended. Try several "
            "numbers in end_of_step. If a formula gave you 1: α is what a call costs before its "
            "first byte, so measure one of 0 bytes.",
            when=_strategy(lambda seconds, compute, size: 1),
        ),
        Mistake(
            "As many buckets as possible: each is a call and costs α, so the calls queue up. "
            "Measure α too, with a call of few bytes.",
            when=_strategy(lambda seconds, compute, size: BUCKETS[-1]),
        ),
        Mistake(
            "α or β is too large. One call may have been slowed down, and two as well: take the "
            "fastest of several. And a call of size bytes takes α + β · size: subtract α before "
            "you divide.",
            when=_strategy(_measured(1))
            | _strategy(_measured(2))
            | _strategy(_measured(3, subtract=False)),
        ),
        Mistake(
            "It is the same number for every link. Measure the link, and let end_of_step decide.",
            when=_always_the_same,
        ),
        Mistake(
            "√(compute / α) is best only if the calls queue up. On a link that keeps up with "
            "backward(), more buckets are better, until their calls begin to queue: measure β, "
            "too, and compare numbers by end_of_step.",
            when=_strategy(_root),
        ),
        Mistake(
            "√(β · size / α) divides the bytes so that they cost as much as α, but it does not "
            "ask what backward() hides: compare numbers by end_of_step, which knows compute.",
            when=_strategy(_root_of_size),
        ),
        Mistake(
            f"More than {CALLS} calls were measured on a link. Two sizes are enough for α and β; "
            "compute the rest with end_of_step.",
            when=simulated(lambda n: dict.fromkeys(map(_label, STEPS), MANY)),
        ),
    ),
    hints=(
        "Two unknown numbers need calls of two very different sizes. How often does "
        "each have to be measured?",
        "A call of 0 bytes takes α. A call of all bytes takes α + β · size. With both you can "
        "compute the end of a step for any number of buckets.",
        "min(range(1, 257), key=…) returns the number whose end_of_step is smallest.",
    ),
)
