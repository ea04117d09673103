"""Each value after a collective has a line from the very place that it came from."""

import numpy as np
import pytest

from labkit.figures.links import links
from labkit.figures.moves import trace
from labkit.figures.values import pieces


def found(before, after):
    """Return the links of a collective, as {place after: places before}."""
    rows = [[pieces(entry) for entry in column] for column in (before, after)]
    places = {}
    for source, target in links(*rows, trace(*rows, [range(len(before))]).owners):
        places.setdefault(target, []).append(source)
    return places


def parts(*rows):
    return [[np.array([value]) for value in row] for row in rows]


TABLE = parts([1, 3, 5], [8, 10, 12], [15, 17, 19])
EVERY = range(3)
LINKS = {
    "broadcast": ([[1, 2], [3, 4], [5, 6]], [[3, 4]] * 3,
                  {(r, i): [(1, i)] for r in EVERY for i in (0, 1)}),
    "scatter": ([TABLE[0], None, None], [[1], [3], [5]], {(r, 0): [(0, r)] for r in EVERY}),
    "gather": ([[7], [8], [9]], [None, None, [7, 8, 9]], {(2, i): [(i, 0)] for i in EVERY}),
    "reduce_scatter": (TABLE, [[24], [30], [36]],
                       {(r, 0): [(s, r) for s in EVERY] for r in EVERY}),
    "reduce_scatter of pairs": ([[1, 2, 3, 4], [10, 20, 30, 40]], [[11, 22], [33, 44]],
                                {(r, i): [(0, 2 * r + i), (1, 2 * r + i)]
                                 for r in (0, 1) for i in (0, 1)}),
    "all_to_all": (TABLE, parts([1, 8, 15], [3, 10, 17], [5, 12, 19]),
                   {(r, i): [(i, r)] for r in EVERY for i in EVERY}),
    "all_reduce": ([[1, 2], [10, 20]], [[11, 22]] * 2,
                   {(r, i): [(0, i), (1, i)] for r in (0, 1) for i in (0, 1)}),
    "the mean": ([[1.0], [2.0]], [[1.5]] * 2, {(r, 0): [(0, 0), (1, 0)] for r in (0, 1)}),
    "nobody knows how": ([[1, 2], [3, 4]], [[77], None],
                         {(0, 0): [(0, 0), (0, 1), (1, 0), (1, 1)]}),
}  # fmt: skip


@pytest.mark.parametrize("case", LINKS.values(), ids=LINKS)
def test_values_are_followed_from_place_to_place(case):
    before, after, places = case
    assert found(before, after) == places


def test_equal_values_are_told_apart_by_their_places():
    places = found([[5, 5], [6, 7]], [[5, 5]] * 2)
    assert places == {(row, i): [(0, i)] for row in (0, 1) for i in (0, 1)}
