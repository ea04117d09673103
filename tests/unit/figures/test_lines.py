"""Lines say what was measured, with units, and fits find what was put in."""

import numpy as np
import pytest

from labkit.figures import bandwidth, by_ranks, fit_alpha_beta, message_cost, scaling

from .drawn import texts

SIZES = [2**i for i in range(6, 26, 2)]
RANKS = [2, 4, 8, 16, 32, 64]
LINES = {
    "server": {n: 2 * (n - 1) for n in RANKS},
    "naive": {n: n - 1 for n in RANKS},
    "ring": {n: 2 * (n - 1) / n for n in RANKS},
    "sharded": {n: 2 * (n - 1) / n for n in RANKS},
}

pytestmark = pytest.mark.usefixtures("drawn")


def line(alpha, beta, sizes=SIZES):
    return [alpha + beta * n for n in sizes]


def rounds(sizes=SIZES):
    """Rounds around the line, every time above its median as often as below."""
    return [[t * factor for t in line(6e-5, 5e-10, sizes)] for factor in np.linspace(0.9, 1.1, 5)]


@pytest.mark.parametrize(("alpha", "beta"), [(1e-4, 1e-9), (0.02, 3e-12), (0.0, 1e-9), (1e-5, 0)])
def test_a_fit_finds_the_line_it_was_made_from(alpha, beta):
    fit = fit_alpha_beta(SIZES, line(alpha, beta))
    assert fit == pytest.approx((alpha, beta), rel=1e-6, abs=1e-15)
    assert fit.seconds(1000) == pytest.approx(alpha + 1000 * beta)


def test_noise_of_large_messages_does_not_spoil_alpha():
    noise = np.random.default_rng(0).normal(1, 0.03, (200, len(SIZES)))
    fits = [fit_alpha_beta(SIZES, line(1e-4, 1e-9) * factors) for factors in noise]
    alphas, betas = zip(*fits, strict=True)
    assert np.std(alphas) < 0.03e-4
    assert np.std(betas) < 0.03e-9
    # absolute least squares are thirty times worse here
    absolute = [np.polyfit(SIZES, line(1e-4, 1e-9) * factors, 1)[1] for factors in noise]
    assert np.std(absolute) > 10 * np.std(alphas)


def test_neither_cost_is_below_zero():
    assert fit_alpha_beta([1000, 4000], [1e-5, 9e-5]).alpha == 0
    falling = fit_alpha_beta([1000, 4000], [9e-5, 1e-5])
    assert falling.beta == 0
    assert 1e-5 < falling.alpha < 9e-5
    assert falling.describe().endswith("1/β = ∞")


def test_bandwidth_draws_points_line_and_limit_in_any_order(drawn):
    times = line(1e-4, 1e-9)
    for order in (-1, 1):
        shown = bandwidth(SIZES[::order], times[::order], world_size=4)
    (bus,) = drawn[0].axes
    points, fit, limit = bus.lines
    np.testing.assert_allclose(points.get_ydata(), 1.5 * np.divide(SIZES, times) / 1e9)
    n = fit.get_xdata()
    np.testing.assert_allclose(fit.get_ydata(), 1.5 * n / (1e-4 + 1e-9 * n) / 1e9, rtol=1e-6)
    np.testing.assert_allclose(limit.get_ydata(), 1.5)
    found = set(texts(drawn[0]))
    assert {"α = 100 µs, 1/β = 1 GB/s", "message (bytes)", "bus bandwidth (GB/s)"} <= found
    assert set(bus.get_xticks()) <= set(SIZES)
    assert "64 B to 16 MiB" in shown.text
    np.testing.assert_array_equal(points.get_xydata(), drawn[1].axes[0].lines[0].get_xydata())


def test_several_curves_have_names_and_looks_of_their_own(drawn):
    pair = {"gloo": line(1e-4, 1e-9), "my ring": line(3e-4, 2e-9)}
    shown = bandwidth(SIZES, pair, world_size=4)
    gloo, _, ring, *_ = drawn[0].axes[0].lines
    assert gloo.get_color() != ring.get_color()
    assert gloo.get_marker() != ring.get_marker()
    labels = [item.get_text() for item in drawn[0].axes[0].get_legend().get_texts()]
    assert [label.split(":")[0] for label in labels[:2]] == ["gloo", "my ring"]
    assert labels[2:] == ["limit of a fit, where a call costs nothing but β"]
    assert "of gloo, my ring" in shown.text


def test_scaling_shows_efficiency_and_the_ideal(drawn):
    shown = scaling([1, 2, 4], [100, 180, 240])
    assert {"100%", "90%", "60%", "ranks", "throughput (images/s)", "ideal"} <= {*texts(drawn[0])}
    np.testing.assert_allclose(drawn[0].axes[0].lines[0].get_xydata(), [(0, 0), (4, 400)])
    assert "images/s against the number of ranks (1, 2, 4)" in shown.text


def test_many_ranks_get_log_axes(drawn):
    scaling([1, 8, 64], [1, 7, 50])
    assert drawn[0].axes[0].get_xscale() == drawn[0].axes[0].get_yscale() == "log"


def points(axes):
    """Centre, lower and upper end of each point, those of held-out sizes last."""
    return np.array([
        (x, y, low, high)
        for bar, _, (ends,) in axes.containers
        for (x, y), ((_, low), (_, high)) in zip(
            bar.get_xydata(), ends.get_segments(), strict=True)
    ])  # fmt: skip


def test_a_message_is_a_median_with_the_middle_half(drawn):
    message_cost(SIZES[::-1], [row[::-1] for row in rounds()])
    time, rate = drawn[0].axes
    n, middle, low, high = points(time).T
    np.testing.assert_allclose(n, SIZES)
    np.testing.assert_allclose(middle, 6e-5 + 5e-10 * n)
    np.testing.assert_allclose([low, high], [0.95 * middle, 1.05 * middle])
    n, middle, low, high = points(rate).T
    np.testing.assert_allclose(middle, n / (6e-5 + 5e-10 * n))
    assert (low < middle).all()
    assert (middle < high).all()
    assert {"Time of one message", "Bandwidth", "bytes per second", "1 GB/s"} <= {*texts(drawn[0])}
    assert "held out" not in texts(drawn[0])


def test_the_line_is_not_fitted_to_what_is_held_out(drawn):
    shown = message_cost([*SIZES, 3000], [[*row, 1.0] for row in rounds()], held_out=[3000])
    time, rate = drawn[0].axes
    grid, fit = time.lines[-1].get_data()
    np.testing.assert_allclose(fit, 6e-5 + 5e-10 * grid, rtol=1e-6)
    np.testing.assert_allclose(rate.lines[-1].get_ydata(), grid / fit)
    np.testing.assert_allclose(rate.lines[-2].get_ydata(), 2e9)  # the limit 1/β
    legend = [item.get_text() for item in time.get_legend().get_texts()]
    assert legend == ["measured", "held out", "α = 60 µs, 1/β = 2 GB/s"]
    assert "1 of the sizes hollow" in shown.text


def test_formulas_and_counts_are_what_was_given(drawn):
    text = by_ranks(LINES, {"ring": {4: 1.5, 2: 1}, "naive": {}}, title="Tensors").text
    assert text.startswith("Tensors, against the number of ranks: server 2 at 2 ranks, 126 at 64;")
    assert "Counted points: ring at 2, 4." in text
    (axes,) = drawn[0].axes
    found = [[*line.get_ydata()] for line in axes.lines if len(line.get_xdata()) == len(RANKS)]
    assert found == [[*values.values()] for values in LINES.values()]
    assert [4, 2] in [[*line.get_xdata()] for line in axes.lines]


def test_what_a_formula_does_not_give_is_left_out(drawn):
    found = by_ranks({"ring": LINES["ring"], "unsolved": dict.fromkeys(RANKS, 0)})
    assert "unsolved" not in found.text
    assert [text.get_text() for text in drawn[0].axes[0].texts] == ["ring"]
    assert "nothing" in by_ranks({"unsolved": dict.fromkeys(RANKS, 0)}).text


def test_no_text_holds_a_measured_number():
    for draw in (
        lambda k: bandwidth(SIZES, line(k * 1e-5, 1e-9), world_size=4),
        lambda k: scaling([1, 2], [10.0 * k, 15.5 * k]),
        lambda k: message_cost(SIZES, [[k * t for t in row] for row in rounds()]),
    ):
        assert draw(1).text == draw(2).text
