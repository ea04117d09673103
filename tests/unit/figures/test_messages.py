"""A message's cost is drawn with its spread, and a line that knows nothing of what is held out."""

from itertools import combinations

import numpy as np
import pytest

from labkit.figures import message_cost
from labkit.figures.style import MAX_WIDTH

SIZES = [4**k for k in range(1, 13)]
ALPHA, BETA = 6e-5, 5e-10


def rounds(count=5, sizes=SIZES):
    """Rounds around the line, every time above its median as often as below."""
    spread = np.linspace(0.9, 1.1, count)
    return [[(ALPHA + BETA * n) * factor for n in sizes] for factor in spread]


pytestmark = pytest.mark.usefixtures("drawn")


def words(figure):
    """Every piece of text that is drawn, with where it is."""
    found = []
    for axes in figure.axes:
        ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()]
        legend = axes.get_legend().get_texts() if axes.get_legend() else []
        titles = [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        for item in (*ticks, *legend, *titles):
            if item.get_visible() and item.get_text().strip():
                found.append((item.get_text(), item.get_window_extent()))
    return found


def points(axes):
    """Centre, lower and upper end of each point, those of held-out sizes last."""
    found = []
    for container in axes.containers:
        line, _, (bars,) = container
        for (x, y), ((_, low), (_, high)) in zip(
            line.get_xydata(), bars.get_segments(), strict=True
        ):
            found.append((x, y, low, high))
    return np.array(found)


def test_points_are_medians_with_the_middle_half(drawn):
    message_cost(SIZES, rounds())
    time, rate = drawn[0].axes
    n, middle, low, high = points(time).T
    np.testing.assert_allclose(middle, ALPHA + BETA * n)
    np.testing.assert_allclose(low, 0.95 * middle)
    np.testing.assert_allclose(high, 1.05 * middle)
    n, middle, low, high = points(rate).T
    np.testing.assert_allclose(middle, n / (ALPHA + BETA * n) / 1e9)
    assert (low < middle).all()
    assert (middle < high).all()


def test_the_line_is_not_fitted_to_what_is_held_out(drawn):
    sizes = [*SIZES, 3000]
    wild = [[*row, 1.0] for row in rounds()]
    shown = message_cost(sizes, wild, held_out=[3000])
    time, rate = drawn[0].axes
    grid, line = time.lines[-1].get_data()
    np.testing.assert_allclose(line, ALPHA + BETA * grid, rtol=1e-6)
    np.testing.assert_allclose(rate.lines[-1].get_ydata(), grid / line / 1e9)
    legend = [item.get_text() for item in time.get_legend().get_texts()]
    assert legend == ["measured", "held out", "α = 60 µs, 1/β = 2 GB/s"]
    assert "1 of the sizes hollow" in shown.text


def test_each_panel_has_a_title_and_units(drawn):
    message_cost(SIZES, rounds(), title="a ping")
    text = [word for word, _ in words(drawn[0])]
    assert {"Time of a ping", "Bandwidth", "time (seconds)", "bytes per second (GB/s)"} <= {*text}
    assert {"1 KiB", "1 MiB"} <= {*text}
    assert "held out" not in text


def test_the_order_of_the_sizes_does_not_matter(drawn):
    for order in (1, -1):
        message_cost(SIZES[::order], [row[::order] for row in rounds()])
    one, other = (points(figure.axes[0]) for figure in drawn)
    np.testing.assert_array_equal(one, other)


def test_the_text_holds_no_measured_number():
    slow = [[2 * t for t in row] for row in rounds()]
    assert message_cost(SIZES, rounds()).text == message_cost(SIZES, slow).text


@pytest.mark.parametrize(
    "sizes", [SIZES, [1, 2], [4**k for k in range(18)]], ids=["usual", "tiny", "all decades"]
)
def test_words_do_not_overlap_and_the_figure_fits_a_page(sizes, drawn):
    message_cost(sizes, rounds(sizes=sizes))
    assert drawn[0].get_tightbbox().width <= MAX_WIDTH + 0.1
    pairs = combinations(words(drawn[0]), 2)
    assert not [(a, b) for (a, x), (b, y) in pairs if x.overlaps(y)]


@pytest.mark.parametrize(
    ("sizes", "table", "out", "message"),
    [
        ([4, 16], [], [], "rows of 2 times"),
        ([4, 16], [[1.0]], [], "rows of 2 times"),
        ([4, 4], [[1.0, 1.0]], [], "a size twice"),
        ([0, 4], [[1.0, 1.0]], [], "not above zero"),
        ([4, 16], [[1.0, 0.0]], [], "times that are not above zero"),
        ([4, 16, 64], [[1.0, 1.0, 1.0]], [5], "5 bytes are held out, but were not measured"),
        ([4, 16], [[1.0, 1.0]], [4], "at least two different"),
    ],
)
def test_what_does_not_fit_is_refused(sizes, table, out, message):
    with pytest.raises(ValueError, match=message):
        message_cost(sizes, table, held_out=out)
