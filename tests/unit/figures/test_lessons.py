"""Figures of single lessons show what they are given."""

import numpy as np
import pytest

from labkit.figures import (
    bubble,
    gradient_sizes,
    killed_writers,
    losses_and_pictures,
    lost_time,
    over_a_step,
    resumed_without,
    scale_history,
    written_by,
)
from labkit.figures.lessons import FLAT, NORMAL, ZERO

pytestmark = pytest.mark.usefixtures("drawn")


def heights(axes):
    """Return how many values stand in each bin of a histogram, by the bin's left edge."""
    bars = (bar for group in axes.containers for bar in group)
    return {round(bar.get_x()): bar.get_height() for bar in bars if bar.get_height()}


def test_each_gradient_stands_in_its_bin_and_what_is_zero_or_not_finite_in_none(drawn):
    small = 2.0**-20.5
    shown = gradient_sizes({"fp32": {"all": [small, -small, 0.0, np.inf]}, "fp16": {"all": [0.0]}})
    first, second = drawn[0].axes
    assert heights(first) == {-21: 2}
    assert heights(second) == {}
    assert "2" not in shown.text.splitlines()[0].replace("log2", "").replace("fp32", "")


def test_zones_end_where_fp16_changes(drawn):
    gradient_sizes({"fp32": {"all": [2.0**-30, 1.0]}})
    zones = [patch for patch in drawn[0].axes[0].patches if patch.get_alpha()]
    assert [zone.get_x() + zone.get_width() for zone in zones] == [ZERO, NORMAL]
    halved = np.float16(2.0**ZERO), np.float16(1.01 * 2.0**ZERO)
    assert (halved[0] == 0, halved[1] == 0) == (True, False)
    assert np.finfo(np.float16).smallest_normal == 2.0**NORMAL


def test_a_cross_stands_at_each_step_before_a_fall(drawn):
    scale_history([8.0, 4.0, 4.0, 8.0, 4.0])
    (crosses,) = (line for line in drawn[0].axes[0].lines if line.get_marker() == "x")
    assert [*crosses.get_xdata(), *crosses.get_ydata()] == [0, 3, 8.0, 8.0]


def test_curves_and_pictures_are_what_was_given(drawn):
    losses = {"drawing": {"a": [2.0, 1.0], "b": [2.0, 2.0]}, "reading": {"a": [3.0, 0.0]}}
    losses_and_pictures(losses, {"a": [[0.0, 1.0, 1.0, 0.0]], "b": [np.eye(2), np.eye(2)]})
    above, below = drawn[0].subfigs
    curves = [[list(line.get_ydata()) for line in axes.lines] for axes in above.axes]
    assert curves == [[[2.0, 1.0], [2.0, 2.0]], [[3.0, 0.0]]]
    shown = [axes.images[0].get_array().tolist() for axes in below.axes if axes.images]
    assert shown == [[[1.0, 0.0], [0.0, 1.0]], *[[[0.0, 1.0], [1.0, 0.0]]] * 2]
    assert [axes.texts[0].get_text() for axes in below.axes if axes.texts] == ["a", "b"]


def test_each_number_has_the_colour_of_its_rank_and_a_word_in_the_legend(drawn):
    written_by([[2, 2, 2], [0, 0, 2]], title="One weight")
    (axes,) = drawn[0].axes
    assert axes.images[0].get_array().tolist() == [[2, 2, 2], [0, 0, 2]]
    assert [text.get_text() for text in axes.get_legend().texts] == ["rank 0", "rank 2"]


def test_curves_are_the_differences_and_a_whole_checkpoint_is_at_0(drawn):
    resumed_without({str(k): [0.5, 0.25 * k] for k in range(6)})
    *curves, zero = drawn[0].axes[0].lines
    assert [list(curve.get_ydata()) for curve in curves] == [[0.5, 0.25 * k] for k in range(6)]
    assert [list(curve.get_xdata()) for curve in curves] == [[1, 2]] * 6
    assert list(zero.get_ydata()) == [0, 0]
    assert len({line.get_color() for line in curves}) == 6


def test_a_mark_stands_where_its_writer_was_killed(drawn):
    left = {"in place": ["nothing", "nothing", "new"], "atomically": ["old", "old", "new"]}
    killed_writers([0, 50, 100], left)
    (axes,) = drawn[0].axes
    marks = {line.get_label(): sorted(zip(*line.get_data(), strict=True)) for line in axes.lines}
    assert marks == {
        "nothing": [(0, 0), (50, 0)],
        "old": [(0, 1), (50, 1)],
        "new": [(100, 0), (100, 1)],
    }


def test_a_bar_spans_the_intervals_that_cost_little_more(drawn):
    shares = [0.06, 0.02 * (1 + FLAT) - 1e-6, 0.02, 0.0219, 0.1]
    text = lost_time([10, 20, 40, 80, 160], {"a": shares}, {"a": [0.05, 0.03, 0.02, 0.02, 0.1]})
    axes = drawn[0].axes[0]
    (bar,) = axes.collections
    assert bar.get_paths()[0].vertices[:, 0].tolist() == [20, 80]
    line, points = axes.lines
    assert list(line.get_ydata()) == shares
    assert list(points.get_ydata()) == [0.05, 0.03, 0.02, 0.02, 0.1]
    assert "0.0" not in text.text


def test_the_law_goes_through_every_count_and_marks_are_as_given(drawn):
    found = bubble([1, 2, 8], {"GPipe": [0.8, 0.7, 0.3], "1F1B": [0.81, 0.6, 0.2]}, stages=4)
    law, *marks = drawn[0].axes[0].lines
    x, y = law.get_xdata(), law.get_ydata()
    assert (x[0], x[-1]) == (1, 8)
    assert (y[0], y[-1]) == (pytest.approx(3 / 4), pytest.approx(3 / 11))
    assert [list(line.get_ydata()) for line in marks] == [[0.8, 0.7, 0.3], [0.81, 0.6, 0.2]]
    assert "0.8" not in found.text


def test_each_line_of_a_step_has_every_moment_in_one_unit(drawn):
    held = {"whole": [1024, 4096, 4096, 4096], "sharded": [1024, 2048, 1024, 3072]}
    text = over_a_step(held, ["start", "forward 0", "between", "backward 0"], title="Parameters")
    (axes,) = drawn[0].axes
    steps = [line for line in axes.lines if line.get_drawstyle() == "steps-mid"]
    assert [list(line.get_ydata()) for line in steps] == [[1, 4, 4, 4], [1, 2, 1, 3]]
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == ["start", "forward\n0", "between", "backward\n0"]
    assert axes.get_ylabel() == "held (KiB)"
    assert text.text.splitlines() == [
        "Parameters over a step, at 4 moments from start to backward 0.",
        "whole: at most 4 KiB, first at forward 0",
        "sharded: at most 3 KiB, first at backward 0",
    ]
    over_a_step({"empty": [0]}, ["start"])
    assert drawn[1].axes[0].get_ylim() == (0, 1)
