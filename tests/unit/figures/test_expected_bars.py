"""Predictions are dashed bars in their order, measured times diamonds on the right ones."""

import numpy as np
import pytest

from labkit.errors import UsageError
from labkit.figures import expected_bars

BILL = {"two levels": 0.25, "ring": 0.5, "alternating": 2.0}

pytestmark = pytest.mark.usefixtures("drawn")


def test_bars_stand_in_order_and_diamonds_on_their_bars(drawn):
    found = expected_bars(BILL, {"alternating": 1.5, "two levels": 0.75}, title="4 MiB")
    (axes,) = drawn[0].axes
    bars = [bar for bar in axes.patches if bar.get_width() in BILL.values()]
    assert [bar.get_width() for bar in bars] == [0.25, 0.5, 2.0]
    assert [text.get_text() for text in axes.get_yticklabels()] == list(BILL)
    (diamonds,) = axes.lines
    assert np.allclose(diamonds.get_xydata(), [[0.75, 0], [1.5, 2]])
    assert found.text.startswith("4 MiB: predicted: two levels 250 ms, ring 500 ms, alternating 2")
    assert "0.75" not in found.text


def test_short_times_get_a_short_unit(drawn):
    expected_bars({"ring": 3e-4})
    (axes,) = drawn[0].axes
    assert axes.get_xlabel() == "time (µs)"
    assert axes.patches[0].get_width() == pytest.approx(300)
    assert not axes.lines


@pytest.mark.parametrize(
    ("expected", "measured"), [({}, {}), ({"ring": 0.0}, {}), ({"ring": 1.0}, {"tree": 1.0})]
)
def test_what_cannot_be_drawn_is_refused(expected, measured):
    with pytest.raises(UsageError):
        expected_bars(expected, measured)
