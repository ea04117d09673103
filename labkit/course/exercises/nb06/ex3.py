"""Exercise 06-3: measure a link, then choose the number of buckets for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import simulated
from .ex1 import end_of_step

#: Seconds of backward() and bytes of gradients; then α and β of the link, which are not shown:
#: calls cost little, bytes cost most, backward() hides nearly everything, and calls cost most. No
#: single number of buckets is good for all of them.
STEPS = (
    (0.200, 40e6, 0.00025, 4e-9),
    (0.050, 20e6, 0.0005, 1e-8),
    (0.100, 8e6, 0.001, 1e-9),
    (0.020, 1e6, 0.006, 1e-8),
)
#: Calls that may be measured per link, and how far from the best a choice may be.
CALLS, NEAR = 8, 1.05
BUCKETS = range(1, 257)
#: A measured time is that much too long, in turn.
NOISE = (0.01, 0.0, 0.02, 0.005)
GOOD, MANY = "within 5 % of the best", f"more than {CALLS} calls measured"

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

    def __init__(self, alpha: float, beta: float) -> None:
        self.alpha, self.beta, self.calls = alpha, beta, 0

    def seconds(self, nbytes: float) -> float:
        self.calls += 1
        return (self.alpha + self.beta * nbytes) * (1 + NOISE[self.calls % len(NOISE)])


def trial(answer: Choose, here: Here | None) -> list[str]:
    return [_judged(answer, *step) for step in STEPS]


def _judged(choose: Choose, compute: float, size: float, alpha: float, beta: float) -> str:
    """Say how good a choice is, as the time of the step divided by the best possible one."""
    link = _Link(alpha, beta)
    buckets = choose(link.seconds, compute, size)
    if not isinstance(buckets, int) or buckets < 1:
        return f"not a number of buckets: {buckets!r}"
    if link.calls > CALLS:
        return MANY
    best = min(end_of_step(compute, size, n, alpha, beta) for n in BUCKETS)
    ratio = end_of_step(compute, size, buckets, alpha, beta) / best
    return GOOD if ratio <= NEAR else f"{buckets} buckets: {ratio:.2f} times the best"


def expected() -> list[str]:
    return [GOOD] * len(STEPS)


def _strategy(choose: Choose) -> Any:
    """Return the predicate of a way to choose."""
    return simulated(lambda n: trial(choose, None))


def _large_call(seconds: Callable[[float], float], compute: float, size: float) -> int:
    """Take a call of all bytes for α."""
    return max(1, round((compute / seconds(size)) ** 0.5))


EXERCISE = Exercise(
    id="06-3",
    title="Measure a link and choose the number of buckets",
    answer="choose",
    trial=trial,
    expected=expected,
    setup=SETUP,
    entries=tuple(f"{1e3 * t:g} ms of backward(), {s / 1e6:g} MB" for t, s, _, _ in STEPS),
    where="notebook",
    mistakes=(
        Mistake(
            "One bucket hides nothing: its call starts when backward() has ended. Try several "
            "numbers in end_of_step.",
            when=_strategy(lambda seconds, compute, size: 1),
        ),
        Mistake(
            "The time of a call with many bytes was taken for α. α is what a call costs before its "
            "first byte: measure one of 0 bytes.",
            when=_strategy(_large_call),
        ),
        Mistake(
            "As many buckets as possible: each is a call and costs α, so the calls queue up. "
            "Measure α too, with a call of few bytes.",
            when=_strategy(lambda seconds, compute, size: BUCKETS[-1]),
        ),
        Mistake(
            f"More than {CALLS} calls were measured on a link. Two sizes are enough for α and β; "
            "compute the rest with end_of_step.",
            when=simulated(lambda n: [MANY] * len(STEPS)),
        ),
    ),
    hints=(
        "Two unknown numbers need two measured calls, of very different sizes.",
        "A call of 0 bytes takes α. A call of all bytes takes α + β · size. With both you can "
        "compute the end of a step for any number of buckets.",
        "min(range(1, 257), key=…) returns the number whose end_of_step is smallest.",
    ),
)
