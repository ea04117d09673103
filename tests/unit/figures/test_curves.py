"""Curves of watched variables: as SVG while a cell runs, as a figure when it has ended."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.figures import curves
from labkit.figures.curves import Line, Panel, as_picture, as_svg, describe
from tests.unit.notebook.test_board import text_of

LOSSES = Panel(
    "losses",
    "index",
    [Line([0], [0, 1, 2], [1.0, 0.5, 0.25]), Line([1, 2], [0, 1, 2], [1.0, None, 2.0])],
)


def test_an_svg_names_ranks_and_their_newest_values():
    html = as_svg(LOSSES)
    assert text_of(html).startswith("losses rank 0 0.25 ranks 1–2 2")
    assert 'aria-label="losses against the index: one curve per rank, on ranks 0–2."' in html


def test_a_value_that_is_not_finite_is_a_gap_and_a_lone_point_a_dot():
    _, broken = re.findall(r'<path d="([^"]*)" fill="none"', as_svg(LOSSES))
    assert broken.count("M") == 2
    first, second = broken.split("M")[1:]
    assert len(set(first.split("L"))) == len(set(second.split("L"))) == 1


@given(
    st.lists(
        st.none() | st.floats(-1e30, 1e30).map(lambda y: 0.0 if abs(y) < 1e-30 else y), min_size=0
    )
)
def test_any_values_are_drawn_inside_the_svg(ys):
    html = as_svg(Panel("x", "index", [Line([0], list(range(len(ys))), ys)]))
    text_of(html)
    for path in re.findall(r'<path d="([^"]*)" fill="none"', html):
        for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", path):
            assert curves.LEFT - 1 <= float(x) <= curves.WIDTH
            assert -1 <= float(y) <= curves.HEIGHT


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.3, 2.3), (-5, 5), (1e-5, 3e-5), (1, 9.9)])
def test_an_axis_has_a_few_round_ticks(low, high):
    ticks = curves._ticks(low, high)
    assert 2 <= len(ticks) <= 5
    assert all(low <= tick <= high for tick in ticks)


def test_the_alt_text_has_no_measured_number():
    equal = Panel("loss", "seconds", [Line([0, 1], [0.5], [1.0])])
    alone = Panel("a", "index", [Line([3], [0], [1.0])])
    assert describe([LOSSES, equal, alone]).split("\n") == [
        "losses against the index: one curve per rank, on ranks 0–2.",
        "loss against the time in seconds: equal on ranks 0–1.",
        "a against the index: on rank 3.",
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_a_figure_has_a_panel_for_each_variable_and_one_legend(drawn, count):
    as_picture([LOSSES] * count)
    (figure,) = drawn
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["losses"] * count
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["rank 0", "ranks 1–2"]
