"""Rounds are drawn with their spread, in pairs, and beside what was predicted."""

import numpy as np
import pytest

from labkit.errors import UsageError
from labkit.figures import against_prediction, paired_ratios

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


def test_times_of_one_decade_have_several_ticks(drawn):
    against_prediction([1, 2], {"DDP": [[0.02], [0.07]]}, {})
    (axes,) = drawn[0].axes
    low, high = axes.get_ylim()
    assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 2


def test_a_prediction_needs_no_measurement(drawn):
    found = against_prediction(SIZES, {}, {"ring": [1e-4, 2e-4, 3e-3]}, xlabel="bucket (bytes)")
    assert "Time of ring, measured and predicted" in found.text
    assert drawn[0].axes[0].get_xlabel() == "bucket (bytes)"
    assert drawn[0].axes[0].get_legend() is None


def test_no_text_holds_a_measured_number():
    one = paired_ratios(SIZES, {"mine": MINE, "theirs": THEIRS}, against="theirs")
    other = paired_ratios(SIZES, {"mine": THEIRS, "theirs": MINE}, against="theirs")
    assert one.text == other.text
    assert (
        against_prediction(SIZES, {"ring": MINE}, {"ring": [1, 2, 3]}).text
        == against_prediction(SIZES, {"ring": THEIRS}, {"ring": [3, 4, 5]}).text
    )


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: paired_ratios(SIZES, {"a": MINE}, against="b"), "give one of a"),
        (lambda: paired_ratios(SIZES[:2], {"a": MINE}, against="a"), "same number of rounds"),
        (
            lambda: paired_ratios(SIZES, {"a": [row[:2] for row in MINE], "b": MINE}, against="b"),
            "a ratio needs pairs",
        ),
        (
            lambda: paired_ratios(SIZES, dict.fromkeys("abcde", MINE), against="a"),
            "up to 4",
        ),
        (lambda: against_prediction(SIZES, {"a": [[0.0]] * 3}, {}), "not above zero"),
        (lambda: against_prediction(SIZES, {"a": MINE}, {"a": [1.0]}), "1 times for 3 sizes"),
        (
            lambda: against_prediction(SIZES, {"a": MINE}, {key: [1, 2, 3] for key in "bcde"}),
            "up to 4",
        ),
    ],
)
def test_what_does_not_fit_is_refused(draw, message):
    with pytest.raises(UsageError, match=message):
        draw()


def test_sizes_may_be_something_else_than_bytes() -> None:
    times = {"mine": MINE, "theirs": THEIRS}
    drawn = paired_ratios([1, 4, 16], times, against="theirs", xlabel="width of the net")
    first = drawn.text.splitlines()[0]
    assert first.endswith("round by round, against width of the net: 1, 4, 16.")
