"""Figures of what training costs show what they are given, and refuse what does not fit."""

import numpy as np
import pytest

from labkit.errors import UsageError
from labkit.figures import lost_time, step_times
from labkit.figures.bill import FLAT

pytestmark = pytest.mark.usefixtures("drawn")

ROWS = [16, 64]
SECONDS = {"alone": [[2e-3, 1e-3, 3e-3], [8e-3]], "DDP": [[9e-3], [1e-2, 1.2e-2]]}


def test_steps_are_medians_with_their_ends_and_predictions_as_given(drawn):
    step_times(ROWS, SECONDS, {"DDP": [8e-3, 1e-2], "alone": None})
    (axes,) = drawn[0].axes
    assert [list(line.get_ydata()) for line in axes.lines] == [
        pytest.approx([2e-3, 8e-3]),
        pytest.approx([9e-3, 1.1e-2]),
        [8e-3, 1e-2],
    ]
    ends = [path.vertices[:, 1].tolist() for path in axes.collections[0].get_paths()]
    assert ends == [[1e-3, 3e-3], [8e-3, 8e-3]]


@pytest.mark.parametrize(("predicted", "edge"), [(40, 40), (1, 16 / 1.3), (1e6, 64 * 1.3)])
def test_the_ground_is_grey_up_to_the_prediction(drawn, predicted, edge):
    step_times(ROWS, SECONDS, hidden_from=predicted)
    (ground,) = drawn[0].axes[0].patches
    assert ground.get_x() + ground.get_width() == pytest.approx(edge)


def test_without_a_prediction_nothing_is_grey(drawn):
    picture = step_times(ROWS, SECONDS)
    assert not drawn[0].axes[0].patches
    assert "redict" not in picture.text


def test_a_bar_spans_the_intervals_that_cost_little_more(drawn):
    shares = [0.06, 0.02 * (1 + FLAT) - 1e-6, 0.02, 0.0219, 0.1]
    lost_time([10, 20, 40, 80, 160], {"a": shares}, {"a": [0.05, 0.03, 0.02, 0.02, 0.1]})
    axes = drawn[0].axes[0]
    (bar,) = axes.collections
    assert bar.get_paths()[0].vertices[:, 0].tolist() == [20, 80]
    line, points = axes.lines
    assert list(line.get_ydata()) == shares
    assert list(points.get_ydata()) == [0.05, 0.03, 0.02, 0.02, 0.1]


def test_texts_hold_no_measured_number():
    step = step_times(ROWS, {"DDP": [[1.234e-3], [5.678e-3]]}, title="2 ranks").text
    assert step.startswith("2 ranks: time of a step against the rows per rank (16, 64)")
    saved = lost_time([60, 600], {"8 GPUs": np.array([0.0123, 0.0456])}).text
    assert not any(number in step + saved for number in ("234", "678", "123", "456"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: step_times(ROWS, {"DDP": [[1.0]]}), "DDP needs at least one round"),
        (lambda: step_times(ROWS, {"DDP": [[], [1.0]]}), "DDP needs at least one round"),
        (lambda: step_times(ROWS, {"DDP": [[0.0], [1.0]]}), "not above zero"),
        (lambda: step_times(ROWS, {name: [[1], [1]] for name in "abcde"}), "5 series"),
        (lambda: step_times(ROWS, {"DDP": [[1], [1]]}, {"DDP": [1]}), "1"),
        (lambda: lost_time([1, 2], {name: [0.1, 0.2] for name in "abcde"}), "5 lines"),
        (lambda: lost_time([1, 2], {"a": [0.1]}), "1"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(UsageError, match=message):
        call()
