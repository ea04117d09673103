"""Predicates for :class:`~labkit.course.exercise.Mistake`: how a misconception shows in values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .compare import same

#: What rounding may change in the result of a mistake that is simulated in one process.
REL, ABS = 1e-4, 1e-6
#: ``when(yours, expected, world_size)`` of a mistake.
When = Callable[[Any, Any, int], bool]


class Predicate:
    """Hold when a mistake shows: called as ``when(yours, expected, world_size)``, with the values
    of all ranks in rank order. Two are joined by ``|`` or ``&``; as a decorator it makes one of a
    function.

    >>> nothing = some_rank(lambda mine, its: mine is None)
    >>> too_much = every_rank(lambda mine, its: mine > its)
    >>> (nothing | too_much)([2, 3], [1, 2], 2)
    True
    """

    def __init__(self, holds: Callable[[Any, Any, int], bool]) -> None:
        self._holds = holds

    def __call__(self, yours: Any, expected: Any, world_size: int) -> bool:
        return self._holds(yours, expected, world_size)

    def __or__(self, other: When) -> Predicate:
        return Predicate(lambda *found: self(*found) or other(*found))

    def __and__(self, other: When) -> Predicate:
        return Predicate(lambda *found: self(*found) and other(*found))


def some_rank(test: Callable[[Any, Any], bool]) -> Predicate:
    """Return what holds if ``test(mine, its)`` does on a rank: what it has, and should have."""
    return Predicate(lambda yours, expected, n: any(map(test, yours, expected)))


def every_rank(test: Callable[[Any, Any], bool]) -> Predicate:
    """Return what holds if ``test(mine, its)`` does on every rank."""
    return Predicate(lambda yours, expected, n: all(map(test, yours, expected)))


def parts(yours: Sequence[Any], place: int) -> list[Any]:
    """Return one item of each rank's list, of the ranks that have so long a list."""
    return [y[place] for y in yours if isinstance(y, list) and len(y) > place]


def near(yours: Any, wrong: Any) -> bool:
    """Return whether two values agree but for rounding."""
    return same(yours, wrong, REL, ABS)


def simulated(
    simulate: Callable[[int], Any], part: Callable[[Any], Any] | None = None
) -> Predicate:
    """Return the predicate of a mistake that gives ``simulate(world_size)``: a value for each rank,
    or the value in the notebook. Where that is right by chance, nobody is accused of it. With
    ``part`` only this part of each rank's value is compared."""

    @Predicate
    def when(yours: Any, expected: Any, world_size: int) -> bool:
        wrong = simulate(world_size)
        if part is not None:
            yours, expected = list(map(part, yours)), list(map(part, expected))
        return near(yours, wrong) and not near(expected, wrong)

    return when


def rank_simulated(
    simulate: Callable[[int, int], Any], part: Callable[[Any], Any] | None = None
) -> Predicate:
    """Return the predicate of a mistake that gives ``simulate(rank, world_size)`` on each rank."""
    return simulated(lambda n: [simulate(rank, n) for rank in range(n)], part)
