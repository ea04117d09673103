"""Lanes show what ran when, and say it without times."""

import importlib

import pytest

from labkit.errors import UsageError
from labkit.figures import lanes

from .drawn import draw

module = importlib.import_module("labkit.figures.lanes")
SPANS = [("a", "all_reduce", 5.0, 6.0), ("b", "wait for a", 5.0, 6.0), ("b", "read", 6.0, 6.1)]


def test_the_text_has_lanes_in_the_order_of_their_names_and_words_in_that_of_time():
    picture = lanes([*SPANS[1:], SPANS[0], ("a", "before", 4.0, 4.5)], title="T", how_to_read="R.")
    assert picture.text.splitlines() == ["T", "b: wait for a, read", "a: before, all_reduce", "R."]


def test_bars_begin_at_zero_and_waits_are_hatched(monkeypatch):
    figure = draw(monkeypatch, module, lambda: lanes(SPANS))
    bars = figure.axes[0].patches
    assert [bar.get_x() for bar in bars] == pytest.approx([0, 0, 1])
    assert [bar.get_width() for bar in bars] == pytest.approx([1, 1, 0.1])
    assert [bool(bar.get_hatch()) for bar in bars] == [False, True, False]


def test_words_are_not_on_each_other_nor_outside(monkeypatch):
    figure = draw(monkeypatch, module, lambda: lanes(SPANS, title="Two lanes"))
    extents = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(extents) == len(SPANS)
    for k, one in enumerate(extents):
        assert not any(one.overlaps(other) for other in extents[:k])
        assert 0 <= one.x0 < one.x1 <= figure.bbox.width


@pytest.mark.parametrize(
    ("spans", "problem"),
    [
        ([], "0 lanes"),
        ([(str(k), "x", 0, 1) for k in range(5)], "5 lanes"),
        ([("a", "x", 1, 0)], "'x' ends before it starts"),
    ],
)
def test_what_cannot_be_drawn_is_refused(spans, problem):
    with pytest.raises(UsageError, match=problem):
        lanes(spans)
