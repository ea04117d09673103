"""Exercise 14-5: compute the efficiency of strong and of weak scaling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...answers import body
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When, near, would_give

#: Seconds by number of ranks, where the work stays the same and where every rank adds its own.
#: Not in order: a dict needs none.
STRONG = {4: 2.5, 2: 4.4, 1: 8.0, 16: 1.0}
WEAK = {64: 1.25, 1: 1.0, 8: 1.1}


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    return [answer(dict(STRONG)), answer(dict(WEAK), weak=True)]


def _parts(times: Mapping[int, float], part: Callable[[int, float, float], float]) -> Any:
    return {n: part(n, times[1], t) for n, t in times.items()}


def expected() -> list[dict[int, float]]:
    return [
        _parts(STRONG, lambda n, one, t: one / (n * t)),
        _parts(WEAK, lambda n, one, t: one / t),
    ]


def _efficient(part: Callable[[int, float, float], float], *, place: int) -> When:
    """Return the predicate of a mistake in the strong (0) or the weak (1) half."""
    times = (STRONG, WEAK)[place]
    return lambda yours, expected, n: near(yours[place], _parts(times, part))


EXERCISE = Exercise(
    id="14-5",
    title="Efficiency",
    answer="efficiency",
    trial=trial,
    expected=expected,
    entries=(f"efficiency({STRONG})", f"efficiency({WEAK}, weak=True)"),
    where="notebook",
    mistakes=(
        Mistake(
            "This is the speed-up, T1 / Tn. Efficiency is the speed-up divided by n.",
            when=_efficient(lambda n, one, t: one / t, place=0),
            shown_by={"the speed-up": body("return {n: times[1] / t for n, t in times.items()}")},
        ),
        Mistake(
            "Upside down: half of the ideal speed is an efficiency of 0.5, not of 2.",
            when=_efficient(lambda n, one, t: n * t / one, place=0),
            shown_by={
                "upside down": body(
                    "return {n: (1 if weak else n) * t / times[1] for n, t in times.items()}"
                )
            },
        ),
        Mistake(
            "These are percentages. Return 1 for the ideal, 0.5 for half of it.",
            when=_efficient(lambda n, one, t: 100 * one / (n * t), place=0),
            shown_by={
                "per cent": body("""
                    return {n: 100 * times[1] / (t if weak else n * t) for n, t in times.items()}
                """),
            },
        ),
        Mistake(
            "In weak scaling n ranks do n times the work: the ideal is that the time stays the "
            "same, so do not divide by n.",
            when=_efficient(lambda n, one, t: one / (n * t), place=1),
            shown_by={
                "weak as strong": body("return {n: times[1] / (n * t) for n, t in times.items()}")
            },
        ),
        Mistake(
            "The weak scaling is upside down: if n ranks take longer than one, the efficiency is "
            "below 1.",
            when=_efficient(lambda n, one, t: t / one, place=1),
            shown_by={
                "weak upside down": body("""
                    return {
                        n: t / times[1] if weak else times[1] / (n * t) for n, t in times.items()
                    }
                """),
            },
        ),
        Mistake(
            "T1 is the time of one rank, times[1]: that need not be the first entry of times.",
            when=would_give(
                lambda n: [
                    {n: STRONG[4] / (n * t) for n, t in STRONG.items()},
                    {n: WEAK[64] / t for n, t in WEAK.items()},
                ]
            ),
            shown_by={
                "the first entry": body("""
                    first = next(iter(times.values()))
                    return {n: first / (t if weak else n * t) for n, t in times.items()}
                """),
            },
        ),
        Mistake(
            "It returns no dict. Return {n: efficiency} with the same keys as times.",
            when=lambda yours, expected, n: not any(isinstance(part, Mapping) for part in yours),
            shown_by={
                "a list": body(
                    "return [times[1] / (t if weak else n * t) for n, t in times.items()]"
                )
            },
        ),
    ),
    another=body("""
        result = {}
        for n, seconds in times.items():
            ideal = times[1] if weak else times[1] / n
            result[n] = ideal / seconds
        return result
    """),
    hints=(
        "What would the ideal run on n ranks take? Efficiency is that, divided by the real time.",
        "The ideal is times[1] / n if the work is shared, and times[1] if every rank has its own.",
        "For each n, divide the ideal seconds by times[n]. Only the ideal depends on weak.",
    ),
)
