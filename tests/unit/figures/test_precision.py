"""Figures of mixed precision show what they are given, and refuse what does not fit."""

import numpy as np
import pytest

from labkit.errors import UsageError
from labkit.figures import (
    gradient_sizes,
    losses_and_pictures,
    scale_history,
    time_and_memory,
)
from labkit.figures.precision import NORMAL, ZERO

pytestmark = pytest.mark.usefixtures("drawn")


def heights(axes):
    """Return how many values stand in each bin of a histogram, by the bin's left edge."""
    bars = (bar for group in axes.containers for bar in group)
    return {round(bar.get_x()): bar.get_height() for bar in bars if bar.get_height()}


def test_each_gradient_stands_in_its_bin_and_zeros_in_none(drawn):
    gradient_sizes({"fp32": {"all": [2.0**-20.5, -(2.0**-20.5), 0.0]}, "fp16": {"all": [0.0]}})
    first, second = drawn[0].axes
    assert heights(first) == {-21: 2}
    assert heights(second) == {}


def test_zones_end_where_fp16_changes(drawn):
    gradient_sizes({"fp32": {"all": [2.0**-30, 1.0]}})
    zones = [patch for patch in drawn[0].axes[0].patches if patch.get_alpha()]
    assert [zone.get_x() + zone.get_width() for zone in zones] == [ZERO, NORMAL]
    halved = np.float16(2.0**ZERO), np.float16(1.01 * 2.0**ZERO)
    assert (halved[0] == 0, halved[1] == 0) == (True, False)
    assert np.finfo(np.float16).smallest_normal == 2.0**NORMAL


def test_a_gradient_that_is_not_finite_has_no_bin(drawn):
    gradient_sizes({"fp16": {"all": [np.inf, np.nan, 0.3]}})
    assert heights(drawn[0].axes[0]) == {-2: 1}


def test_a_cross_stands_at_each_step_before_a_fall(drawn):
    scale_history([8.0, 4.0, 4.0, 8.0, 4.0])
    (crosses,) = (line for line in drawn[0].axes[0].lines if line.get_marker() == "x")
    assert list(crosses.get_xdata()) == [0, 3]
    assert list(crosses.get_ydata()) == [8.0, 8.0]


def test_curves_and_pictures_are_what_was_given(drawn):
    losses = {"drawing": {"a": [2.0, 1.0], "b": [2.0, 2.0]}, "reading": {"a": [3.0, 0.0]}}
    losses_and_pictures(losses, {"a": [[0.0, 1.0, 1.0, 0.0]], "b": [np.eye(2), np.eye(2)]})
    above, below = drawn[0].subfigs
    curves = [[list(line.get_ydata()) for line in axes.lines] for axes in above.axes]
    assert curves == [[[2.0, 1.0], [2.0, 2.0]], [[3.0, 0.0]]]
    shown = [axes.images[0].get_array().tolist() for axes in below.axes if axes.images]
    assert shown == [[[1.0, 0.0], [0.0, 1.0]], *[[[0.0, 1.0], [1.0, 0.0]]] * 2]
    assert [axes.texts[0].get_text() for axes in below.axes if axes.texts] == ["a", "b"]


def test_times_are_medians_with_their_ends_and_bytes_as_given(drawn):
    time_and_memory({"fp32": {64: [0.3, 0.1, 0.2], 32: [0.1]}}, {"fp32": {16: 1024.0}})
    left, right = drawn[0].axes
    (line,) = left.lines
    assert list(line.get_xdata()) == [32, 64]
    assert list(line.get_ydata()) == pytest.approx([0.1, 0.2])
    (spread,) = left.collections
    assert [path.vertices[:, 1].tolist() for path in spread.get_paths()] == [[0.1, 0.1], [0.1, 0.3]]
    assert [list(line.get_ydata()) for line in right.lines] == [[1024.0]]


def test_texts_hold_no_measured_number():
    times = time_and_memory({"fp32": {64: [0.123]}}, {"fp32": {16: 987.0}}, title="2 ranks").text
    assert "123" not in times
    assert "987" not in times
    assert times.startswith("2 ranks. Left: time of a step against the width, for fp32.")
    assert "7.5" not in gradient_sizes({"fp32": {"all": [7.5]}}, title="All").text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gradient_sizes({"fp32": {}}), "0 parts"),
        (lambda: gradient_sizes({"fp32": {key: [1.0] for key in "abc"}}), "3 parts"),
        (lambda: losses_and_pictures({"x": {key: [1.0] for key in "abcde"}}, {}), "up to 4"),
        (lambda: time_and_memory({key: {1: [1.0]} for key in "abcde"}, {}), "up to 4"),
        (lambda: time_and_memory({"fp32": {32: []}}, {}), "without a round"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(UsageError, match=message):
        call()
