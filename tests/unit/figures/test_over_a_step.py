"""What is held at the moments of a step is drawn as steps, each line with its peak in the text."""

import pytest

from labkit.errors import UsageError
from labkit.figures import over_a_step

MOMENTS = ["start", "forward 0", "between", "backward 0"]
HELD = {"whole": [1024, 4096, 4096, 4096], "sharded": [1024, 2048, 1024, 3072]}

pytestmark = pytest.mark.usefixtures("drawn")


def test_each_line_has_every_moment_in_one_unit(drawn):
    over_a_step(HELD, MOMENTS)
    (axes,) = drawn[0].axes
    steps = [line for line in axes.lines if line.get_drawstyle() == "steps-mid"]
    assert [list(line.get_ydata()) for line in steps] == [[1, 4, 4, 4], [1, 2, 1, 3]]
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == ["start", "forward\n0", "between", "backward\n0"]
    assert axes.get_ylabel() == "held (KiB)"


def test_the_text_says_the_peaks_and_when():
    text = over_a_step(HELD, MOMENTS, title="Parameters").text.splitlines()
    assert text[:3] == [
        "Parameters over a step, at 4 moments from start to backward 0.",
        "whole: at most 4 KiB, first at forward 0",
        "sharded: at most 3 KiB, first at backward 0",
    ]


def test_nothing_held_is_drawn_too(drawn):
    over_a_step({"empty": [0, 0, 0, 0]}, MOMENTS)
    assert drawn[0].axes[0].get_ylim() == (0, 1)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({}, "0 lines"),
        ({str(k): [1] * 4 for k in range(5)}, "5 lines"),
        ({"short": [1, 2]}, "short has 2 numbers for 4 moments"),
    ],
)
def test_what_does_not_fit_is_refused(held, message):
    with pytest.raises(UsageError, match=message):
        over_a_step(held, MOMENTS)
