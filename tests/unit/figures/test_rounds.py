"""Rounds are drawn with their spread, in pairs, and beside what was predicted."""

import numpy as np
import pytest

from labkit.figures import against_prediction, paired_ratios, step_times, time_and_memory

SIZES = [1024, 2**15, 2**20]
#: Three rounds for each size.
MINE = [[2e-4, 3e-4, 2e-4], [3e-4, 6e-4, 3e-4], [2e-2, 1e-2, 4e-2]]
THEIRS = [[1e-4, 3e-4, 4e-4], [3e-4, 3e-4, 3e-4], [1e-2, 4e-2, 4e-2]]


pytestmark = pytest.mark.usefixtures("drawn")


def test_a_ratio_is_of_one_round(drawn):
    paired_ratios(SIZES, {"mine": MINE, "theirs": THEIRS}, against="theirs")
    (axes,) = drawn[0].axes
    dots = np.array([line.get_ydata() for line in axes.lines if len(line.get_ydata()) == 3])
    expected = np.array(THEIRS) / np.array(MINE)
    assert np.allclose(np.sort(dots.ravel()), np.sort(expected.ravel()))
    (medians,) = axes.collections
    heights = [path.vertices[0, 1] for path in medians.get_paths()]
    assert np.allclose(heights, np.median(expected, axis=1))


def test_a_stray_round_is_drawn_at_the_edge(drawn):
    stray = [[1.0, 2e-4, 3e-4], *MINE[1:]]
    paired_ratios(SIZES, {"mine": stray, "theirs": THEIRS}, against="theirs")
    (axes,) = drawn[0].axes
    assert min(min(line.get_ydata()) for line in axes.lines if len(line.get_ydata()) == 3) == 1 / 8


def test_contenders_stand_apart_and_are_named(drawn):
    paired_ratios(SIZES, {"a": MINE, "b": MINE, "theirs": THEIRS}, against="theirs", title="Race")
    (axes,) = drawn[0].axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    places = {tuple(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 3}
    assert len(places) == 2


def test_who_races_alone_is_drawn_all_the_same(drawn):
    found = paired_ratios(SIZES, {"theirs": THEIRS}, against="theirs")
    assert "that of nobody" in found.text
    assert drawn


def test_predictions_are_dashed_and_may_be_missing(drawn):
    predicted = {"ring": [1e-4, 2e-4, 3e-3], "tree": None}
    against_prediction(SIZES, {"ring": MINE, "tree": THEIRS}, predicted)
    (axes,) = drawn[0].axes
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [list(line.get_ydata()) for line in dashed] == [[1e-4, 2e-4, 3e-3]]
    points = [line for line in axes.lines if line.get_linestyle() == "None"]
    assert [list(line.get_ydata()) for line in points] == [
        list(np.median(rows, axis=1)) for rows in (MINE, THEIRS)
    ]


def test_axes_say_what_was_timed(drawn):
    against_prediction(SIZES, {"DDP": MINE}, {}, xlabel="bucket (bytes)", ylabel="backward pass")
    (axes,) = drawn[0].axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("bucket (bytes)", "backward pass")


def test_a_short_axis_has_several_ticks(drawn):
    against_prediction([1, 2], {"DDP": [[0.02], [0.07]]}, {})
    paired_ratios([1, 2], {"a": [[1.1, 1.0]] * 2, "b": [[1.0, 1.2]] * 2}, against="a")
    for figure in drawn:
        low, high = figure.axes[0].get_ylim()
        assert sum(low <= tick <= high for tick in figure.axes[0].get_yticks()) >= 2


def test_a_prediction_needs_no_measurement(drawn):
    found = against_prediction(SIZES, {}, {"ring": [1e-4, 2e-4, 3e-3]})
    assert "Time of ring, measured and predicted" in found.text
    assert drawn[0].axes[0].get_legend() is None


def test_no_text_holds_a_measured_number():
    one = paired_ratios(SIZES, {"mine": MINE, "theirs": THEIRS}, against="theirs")
    other = paired_ratios(SIZES, {"mine": THEIRS, "theirs": MINE}, against="theirs")
    assert one.text == other.text
    assert (
        against_prediction(SIZES, {"ring": MINE}, {"ring": [1, 2, 3]}).text
        == against_prediction(SIZES, {"ring": THEIRS}, {"ring": [3, 4, 5]}).text
    )


def test_sizes_may_be_something_else_than_bytes() -> None:
    times = {"mine": MINE, "theirs": THEIRS}
    drawn = paired_ratios([1, 4, 16], times, against="theirs", xlabel="width of the net")
    first = drawn.text.splitlines()[0]
    assert first.endswith("round by round, against width of the net: 1, 4, 16.")


ROWS = [16, 64]
SECONDS = {"alone": [[2e-3, 1e-3, 3e-3], [8e-3]], "DDP": [[9e-3], [1e-2, 1.2e-2]]}


def test_steps_are_medians_with_their_ends_and_predictions_as_given(drawn):
    shown = step_times(ROWS, SECONDS, {"DDP": [8e-3, 1e-2], "alone": None}, title="2 ranks")
    (axes,) = drawn[0].axes
    assert [list(line.get_ydata()) for line in axes.lines] == [
        pytest.approx([2e-3, 8e-3]),
        pytest.approx([9e-3, 1.1e-2]),
        [8e-3, 1e-2],
    ]
    ends = [path.vertices[:, 1].tolist() for path in axes.collections[0].get_paths()]
    assert ends == [[1e-3, 3e-3], [8e-3, 8e-3]]
    assert not axes.patches
    assert shown.text.startswith("2 ranks: time of a step against the rows per rank (16, 64)")
    assert "Grey" not in shown.text
    other = {"alone": SECONDS["DDP"], "DDP": SECONDS["alone"]}
    assert step_times(ROWS, other, {"DDP": [1, 2]}, title="2 ranks").text == shown.text
    assert "redict" not in step_times(ROWS, SECONDS, {"DDP": None}).text


@pytest.mark.parametrize(("predicted", "edge"), [(40, 40), (1, 16 / 1.3), (1e6, 64 * 1.3)])
def test_the_ground_is_grey_up_to_the_prediction(drawn, predicted, edge):
    step_times(ROWS, SECONDS, {}, hidden_from=predicted)
    (ground,) = drawn[0].axes[0].patches
    assert ground.get_x() + ground.get_width() == pytest.approx(edge)


def test_times_are_medians_with_their_ends_and_bytes_as_given(drawn):
    seconds, kept = {"fp32": {64: [0.3, 0.1, 0.223], 32: [0.1]}}, {"fp32": {16: 1987.0}}
    text = time_and_memory(seconds, kept, title="2 ranks").text
    assert text.startswith("2 ranks. Left: time of a step against the width, for fp32.")
    assert not any(number in text for number in ("223", "987"))
    left, right = drawn[0].axes
    (line,) = left.lines
    assert list(line.get_xdata()) == [32, 64]
    assert list(line.get_ydata()) == pytest.approx([0.1, 0.223])
    (spread,) = left.collections
    assert [path.vertices[:, 1].tolist() for path in spread.get_paths()] == [[0.1, 0.1], [0.1, 0.3]]
    assert [list(line.get_ydata()) for line in right.lines] == [[1987.0]]


def test_a_prediction_may_be_against_a_number(drawn):
    times, predicted = {"overlapped": MINE}, {"overlapped": [1e-4, 2e-4, 3e-3]}
    found = against_prediction([1, 4, 32], times, predicted, xlabel="number of buckets")
    assert found.text.splitlines()[0].endswith("against number of buckets: 1, 4, 32.")
    ticks = [label.get_text() for label in drawn[0].axes[0].get_xticklabels()]
    assert ticks == ["1", "4", "32"]


def test_milliseconds_begin_at_zero_in_equal_steps_and_a_bound_has_its_name(drawn):
    found = against_prediction(
        [1, 4], {"overlapped": [[0.3], [0.2]]}, {"overlapped": [0.31, 0.21]},
        xlabel="number", milliseconds=True, bounds={"computing alone": 0.15},
    )  # fmt: skip
    (axes,) = drawn[0].axes
    assert axes.get_yscale() == "linear"
    assert axes.get_ylim()[0] == 0
    heights = [list(line.get_ydata()) for line in axes.lines]
    assert heights == [pytest.approx(each) for each in ([310, 210], [300, 200], [150, 150])]
    assert "computing alone" in [text.get_text() for text in axes.texts]
    assert "of overlapped and of computing alone" in found.text


def test_two_predictions_cross_at_a_dotted_line_and_ticks_are_below_points(drawn):
    predicted = {"ring": [1e-4, 2e-4, 3e-3]}
    against_prediction([4096, 32768, 2**20], {}, predicted, crossing=("equal", 65536))
    (axes,) = drawn[0].axes
    assert [*axes.lines[-1].get_xdata()] == [65536, 65536]
    assert axes.texts[-1].get_text() == "equal"
    assert [*axes.get_xticks()] == [4096, 32768, 2**20]
