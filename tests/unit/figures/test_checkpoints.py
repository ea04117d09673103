"""Figures of checkpoints show what they are given, and refuse what does not fit."""

import pytest

from labkit.errors import UsageError
from labkit.figures import killed_writers, resumed_without, written_by

from .drawn import check_words

pytestmark = pytest.mark.usefixtures("drawn")


def test_each_number_has_the_colour_of_its_rank_and_a_word_in_the_legend(drawn):
    written_by([[2, 2, 2], [0, 0, 2]], title="One weight")
    (axes,) = drawn[0].axes
    assert axes.images[0].get_array().tolist() == [[2, 2, 2], [0, 0, 2]]
    assert [text.get_text() for text in axes.get_legend().texts] == ["rank 0", "rank 2"]


def test_a_weight_is_a_matrix():
    with pytest.raises(UsageError, match=r"shape \(3,\)"):
        written_by([0, 1, 2])


def test_curves_are_the_differences_and_a_whole_checkpoint_is_at_0(drawn):
    resumed_without({"rng": [0.5, 0.25], "epoch": [0.0, 1.0]})
    *curves, zero = drawn[0].axes[0].lines
    assert [list(curve.get_ydata()) for curve in curves] == [[0.5, 0.25], [0.0, 1.0]]
    assert [list(curve.get_xdata()) for curve in curves] == [[1, 2], [1, 2]]
    assert list(zero.get_ydata()) == [0, 0]


def test_six_parts_can_be_told_apart_and_seven_cannot(drawn):
    resumed_without({str(k): [0.0, 1.0] for k in range(6)})
    looks = [(line.get_color(), line.get_linestyle()) for line in drawn[0].axes[0].lines[:6]]
    assert len(set(looks)) == len({colour for colour, _ in looks}) == 6
    with pytest.raises(UsageError, match="up to 6"):
        resumed_without({str(k): [0.0] for k in range(7)})


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


def test_every_writer_has_left_something():
    with pytest.raises(UsageError, match="'in place' has 1 writers, not 2"):
        killed_writers([0, 50], {"in place": ["old"]})


def test_words_are_apart(drawn):
    written_by([[0, 1], [2, 3]], title="One weight")
    resumed_without({name: [0.0, 1.0] for name in ("net", "optimizer", "scheduler")}, title="Runs")
    killed_writers([0, 100], {"save": ["nothing", "new"], "save_atomically": ["old", "new"]})
    for figure in drawn:
        check_words(figure, beyond=True)  # ticks at the ends of an axis, which are not drawn
