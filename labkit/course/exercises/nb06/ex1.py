"""Exercise 06-1: when the last all-reduce ends, if buckets are averaged during backward()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated
from ...slips import Formula

#: compute, size, buckets, alpha, beta: calls that take longer than a bucket's gradients, and
#: shorter; one bucket; no compute time; a price of a call alone, or of bytes alone.
CASES = (
    (0.040, 8e6, 4, 0.001, 1e-9),
    (0.012, 6e6, 3, 0.001, 4e-9),
    (0.040, 8e6, 1, 0.001, 1e-9),
    (0.040, 8e6, 64, 0.001, 1e-9),
    (0.0, 6e6, 3, 0.001, 1e-9),
    (0.030, 6e6, 5, 0.002, 0.0),
    (0.010, 9e6, 3, 0.0, 2e-9),
)


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    seconds = [answer(*case) for case in CASES]
    return [round(each, 9) if isinstance(each, float) else each for each in seconds]


def end_of_step(compute: float, size: float, buckets: int, alpha: float, beta: float) -> float:
    """Return when the last all-reduce ends: follow the buckets one by one."""
    end = 0.0
    for k in range(buckets):
        ready = compute * (k + 1) / buckets
        end = max(end, ready) + alpha + beta * size / buckets
    return end


def expected() -> list[float]:
    return [round(end_of_step(*case), 9) for case in CASES]


def _label(case: tuple[float, float, int, float, float]) -> str:
    """Return a case in words: its times in milliseconds, its bytes in MB."""
    compute, size, buckets, alpha, beta = case
    rate = f"{1e-6 / beta:g} MB/s" if beta else "β = 0"
    return (
        f"{1e3 * compute:g} ms, {size / 1e6:g} MB, {buckets} bucket{'s'[: buckets > 1]}, "
        f"α {1e3 * alpha:g} ms, {rate}"
    )


def _loop(compute: float, size: float, buckets: int, alpha: float, beta: float) -> float:
    """Return what comes out if buckets are counted from 0: the first one is ready immediately."""
    end = 0.0
    for k in range(buckets):
        end = max(end, compute * k / buckets) + alpha + beta * size / buckets
    return end


def _by(formula: Callable[[float, float, int, float, float], float]) -> Predicate:
    """Return the predicate of a wrong formula of compute, size, buckets, alpha and beta."""
    return simulated(lambda n: [formula(*case) for case in CASES])


EXERCISE = Exercise(
    id="06-1",
    title="When does the last bucket arrive?",
    answer="end_of_step",
    trial=trial,
    expected=expected,
    formula=Formula(
        "call = alpha + beta * size / buckets\n"
        "max(compute + call, compute / buckets + buckets * call)",
        "compute size buckets alpha beta",
        lambda n: CASES,
    ),
    entries=tuple(map(_label, CASES)),
    where="notebook",
    mistakes=(
        Mistake(
            "Nothing overlaps here: all calls come after backward(). A bucket's call starts as "
            "soon as the bucket is ready and the previous call has ended.",
            when=_by(lambda t, s, b, x, y: t + b * x + s * y),
        ),
        Mistake(
            "That is right only if all calls but the last are hidden. If a call takes longer than "
            "the gradients of a bucket, the calls queue: each waits for the one before.",
            when=_by(lambda t, s, b, x, y: t + x + y * s / b),
        ),
        Mistake(
            "This assumes that the calls queue from the first bucket on. If a call takes less "
            "time than the gradients of a bucket, it waits for the next bucket to be ready.",
            when=_by(lambda t, s, b, x, y: t / b + b * x + s * y),
        ),
        Mistake(
            "Every bucket is a call, so α is paid once per bucket.",
            when=_by(lambda t, s, b, x, y: max(t + x + y * s / b, t / b + x + y * s))
            | _by(lambda t, s, b, x, y: end_of_step(t, s, b, x / b, y)),
        ),
        Mistake(
            "These are the seconds after the end of backward(). Count from its beginning.",
            when=_by(lambda t, s, b, x, y: end_of_step(t, s, b, x, y) - t),
        ),
        Mistake(
            "You take the longer of computing and sending. But the first bucket is ready only "
            "after compute / buckets, and the last one is sent after all computing.",
            when=_by(lambda t, s, b, x, y: max(t, b * x + s * y)),
        ),
        Mistake(
            "Your first bucket is ready at the beginning of backward(), and your last one before "
            "its end. Bucket k, counted from 0, is ready after compute * (k + 1) / buckets.",
            when=_by(_loop),
        ),
        Mistake(
            "You add one more call in both cases. If the calls queue, buckets · call has the last "
            "one already, and the first one starts after compute / buckets.",
            when=_by(lambda t, s, b, x, y: max(t, b * x + s * y) + x + y * s / b),
        ),
    ),
    hints=(
        "Draw the time of backward() as a line with one mark per bucket, and below it the calls, "
        "one after the other. None starts before its mark.",
        "Either a call is over before the next bucket is ready: then only the last call lasts "
        "longer than backward(). Or it is not: then all calls follow each other without a gap, "
        "from the first mark on.",
        "With the time of one call, both cases are simple sums. The calls can only be late, so the "
        "larger of the two sums is right. A loop over the buckets will do, too: a call starts at "
        "its mark or at the end of the call before, whichever is later.",
    ),
)
