"""Predicates for :class:`~labkit.course.exercise.Mistake`: how a misconception shows in values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .compare import same

#: ``when(yours, expected, world_size)`` of a mistake.
When = Callable[[Any, Any, int], bool]

#: What rounding may change in the result of a mistake that is played through in one process.
REL, ABS = 1e-4, 1e-6


def parts(yours: Sequence[Any], place: int) -> list[Any]:
    """Return one item of each rank's list, of the ranks that have so long a list."""
    return [y[place] for y in yours if isinstance(y, list) and len(y) > place]


def near(yours: Any, wrong: Any) -> bool:
    """Tell whether two values agree but for rounding."""
    return same(yours, wrong, REL, ABS)


def any_of(*whens: When) -> When:
    """Return the predicate of a mistake that shows in one of several ways."""
    return lambda yours, expected, world_size: any(w(yours, expected, world_size) for w in whens)


def would_give(play: Callable[[int], Any]) -> When:
    """Return the predicate of a mistake that gives ``play(world_size)``: a value for each rank, or
    the value in the notebook. Where that is right by chance, nobody is accused of it."""

    def when(yours: Any, expected: Any, world_size: int) -> bool:
        wrong = play(world_size)
        return near(yours, wrong) and not near(expected, wrong)

    return when
