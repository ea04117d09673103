"""Formulas are drawn as lines with their names, counted values as points on them."""

from itertools import combinations

import pytest

from labkit.errors import UsageError
from labkit.figures import by_ranks

RANKS = [2, 4, 8, 16, 32, 64]
LINES = {
    "server": {n: 2 * (n - 1) for n in RANKS},
    "naive": {n: n - 1 for n in RANKS},
    "ring": {n: 2 * (n - 1) / n for n in RANKS},
    "sharded": {n: 2 * (n - 1) / n for n in RANKS},
}


pytestmark = pytest.mark.usefixtures("drawn")


def test_lines_and_points_are_what_was_given(drawn):
    by_ranks(LINES, {"ring": {3: 4 / 3, 4: 1.5}})
    (axes,) = drawn[0].axes
    drawn_lines = [line for line in axes.lines if len(line.get_xdata()) == len(RANKS)]
    assert [list(line.get_ydata()) for line in drawn_lines] == [
        list(values.values()) for values in LINES.values()
    ]
    (points,) = (line for line in axes.lines if list(line.get_xdata()) == [3, 4])
    assert list(points.get_ydata()) == [4 / 3, 1.5]


def test_names_of_lines_that_meet_do_not_overlap(drawn):
    by_ranks(LINES)
    names = drawn[0].axes[0].texts
    assert {text.get_text() for text in names} == set(LINES)
    boxes = [text.get_window_extent() for text in names]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_what_a_formula_does_not_give_is_left_out(drawn):
    found = by_ranks({"ring": LINES["ring"], "unsolved": dict.fromkeys(RANKS, 0)})
    assert "unsolved" not in found.text
    assert [text.get_text() for text in drawn[0].axes[0].texts] == ["ring"]


def test_nothing_can_be_drawn(drawn):
    assert "nothing" in by_ranks({"unsolved": dict.fromkeys(RANKS, 0)}).text
    assert drawn


def test_the_text_holds_both_ends_and_the_counted_points():
    text = by_ranks(LINES, {"server": {4: 6, 2: 2}, "ring": {}}, title="Tensors").text
    assert text.startswith("Tensors, against the number of ranks: server 2 at 2 ranks, 126 at 64;")
    assert "Counted points: server at 2, 4." in text


@pytest.mark.parametrize(
    ("lines", "points", "message"),
    [
        ({key: {2: 1} for key in "abcde"}, {}, "up to 4"),
        ({"ring": {2: 1}}, {"tree": {2: 1}}, "'tree', which is no line"),
    ],
)
def test_what_does_not_fit_is_refused(lines, points, message):
    with pytest.raises(UsageError, match=message):
        by_ranks(lines, points)
