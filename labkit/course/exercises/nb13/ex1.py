"""Exercise 13-1: cut layers into stages so that the slowest stage is as fast as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, combinations, pairwise
from typing import Any

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, When, simulated

#: What the layers cost, and the number of stages.
CUTS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((4, 1, 1, 1, 1), 2),
    ((1, 1, 1, 1, 4, 4), 3),
    ((2, 2, 5, 1), 2),
    ((5, 1, 1, 1, 1, 5), 2),
    ((1, 5, 1, 5, 1, 1, 1), 3),
    ((2, 2, 2, 2, 2, 2, 2), 4),
    ((1, 1, 1, 3, 1), 3),
    ((1, 4, 7, 7, 1, 5, 2, 1), 4),
    ((3, 1), 1),
    ((9, 6, 3), 3),
    ((5, 3, 2, 5, 4), 3),
)
PLACES, STAGES, EMPTY, LAYERS = "places", "stages", "an empty stage", "layers"


def _stages(costs: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Return what each stage costs."""
    return [sum(costs[i:j]) for i, j in pairwise(accumulate(counts, initial=0))]


def _best(costs: Sequence[int], p: int, by: Callable[[list[int]], int] = max) -> list[int]:
    """Try all ways to cut; return the layers of each stage where ``by`` of the costs is least."""
    ways = [(0, *places, len(costs)) for places in combinations(range(1, len(costs)), p - 1)]
    counts = [[j - i for i, j in pairwise(way)] for way in ways]
    return min(counts, key=lambda counts: by(_stages(costs, counts)))


def _weigh(costs: Sequence[int], p: int, counts: Any) -> Any:
    """Return the cost of the most expensive stage, or what is wrong with the cut."""
    counts = [int(count) for count in counts]
    if len(counts) != p:
        return PLACES if counts[:1] == [0] else STAGES
    if min(counts) < 1:
        return EMPTY
    return max(_stages(costs, counts)) if sum(counts) == len(costs) else LAYERS


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Return the cost of the most expensive stage in each case."""
    return [_weigh(costs, p, answer(list(costs), p)) for costs, p in CUTS]


def expected() -> list[int]:
    return [max(_stages(costs, _best(costs, p))) for costs, p in CUTS]


def _by_number(costs: Sequence[int], p: int) -> list[int]:
    """Give each stage equally many layers."""
    return [len(costs) // p + (s < len(costs) % p) for s in range(p)]


def _filled(costs: Sequence[int], p: int) -> list[int]:
    """Fill each stage until it has its share, and give the last one what is left."""
    counts, cost = [0], 0
    for layer in costs:
        if cost >= sum(costs) / p and len(counts) < p:
            counts, cost = [*counts, 0], 0
        counts[-1] += 1
        cost += layer
    return counts


def _nearest(costs: Sequence[int], p: int) -> list[int]:
    """End each stage where its cost is nearest to its share."""
    share, counts, at = sum(costs) / p, [], 0
    for later in range(p - 1, 0, -1):
        ends = range(at + 1, len(costs) - later + 1)
        end = min(ends, key=lambda end: abs(sum(costs[at:end]) - share))
        counts.append(end - at)
        at = end
    return [*counts, len(costs) - at]


def _cuts(way: Callable[[Sequence[int], int], list[int]]) -> Predicate:
    return simulated(lambda n: [max(_stages(costs, way(costs, p))) for costs, p in CUTS])


def _tells(problem: str) -> When:
    return lambda yours, expected, n: problem in yours


EXERCISE = Exercise(
    id="13-1",
    title="Cut evenly",
    answer="cut",
    trial=trial,
    expected=expected,
    entries=tuple(f"cut({list(costs)}, {p})" for costs, p in CUTS),
    where="notebook",
    mistakes=(
        Mistake(
            "You return the places where you cut. Return how many layers each stage gets: the "
            "differences between neighbouring places.",
            when=_tells(PLACES),
        ),
        Mistake(
            "The list does not have p numbers: one for each stage.",
            when=_tells(STAGES),
        ),
        Mistake(
            "A stage gets no layer, so that its rank would have nothing to do: give each stage "
            "at least one.",
            when=_tells(EMPTY),
        ),
        Mistake(
            "The numbers do not add up to the number of layers. Return how many layers each stage "
            "gets, not what they cost or where it ends; none may be left out or doubled.",
            when=_tells(LAYERS),
        ),
        Mistake(
            "You make the stages as equal as possible. That is not the same: the cheapest stage "
            "does not count, only the most expensive one.",
            when=_cuts(partial(_best, by=lambda stages: max(stages) - min(stages))),
        ),
        Mistake(
            "You give all stages equal numbers of layers, but layers cost different amounts: "
            "make the most expensive stage as cheap as possible.",
            when=_cuts(_by_number),
        ),
        Mistake(
            "You fill each stage until it has its share of the cost, which can overfill it by "
            "almost a whole layer: compare all ways to cut.",
            when=_cuts(_filled),
        ),
        Mistake(
            "You end each stage where its cost is nearest to its share, without a look at what is "
            "left for the stages after it: compare all ways to cut.",
            when=_cuts(_nearest),
        ),
    ),
    hints=(
        "There are few ways to cut: p - 1 places out of len(costs) - 1. Try them all.",
        "combinations(range(1, len(costs)), p - 1) gives the places. With 0 before and len(costs) "
        "after them, a stage has the layers from one place to the next.",
        "With way = (0, *places, len(costs)), pairwise(way) gives the ends i, j of each stage, "
        "and sum(costs[i:j]) its cost. min takes a key: the cost of a way's most expensive stage.",
    ),
)
