"""Curves and bars say what was measured, with units, and fits find what was put in."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_hex

from labkit.figures import bandwidth, bus_bandwidth, fit_alpha_beta, memory, scaling
from labkit.figures.style import CARD, MAX_WIDTH

from ..test_rank_colours import contrast

SIZES = [2**i for i in range(6, 26, 2)]
MIB = 2**20


def line(alpha, beta, sizes=SIZES):
    return [alpha + beta * n for n in sizes]


pytestmark = pytest.mark.usefixtures("drawn")


def written(figure):
    """Every piece of text that is drawn."""
    for axes in figure.axes:
        ticks = [  # those beyond the ends of an axis are not drawn
            item
            for i, limits, items in (
                (0, axes.get_xlim(), axes.get_xticklabels()),
                (1, axes.get_ylim(), axes.get_yticklabels()),
            )
            for item in items
            if min(limits) <= item.get_position()[i] <= max(limits)
        ]
        legend = axes.get_legend().get_texts() if axes.get_legend() else []
        for item in (*ticks, *legend, *axes.texts, axes.xaxis.label, axes.yaxis.label):
            if item.get_visible() and item.get_text().strip():
                yield item


def words(figure):
    """Every piece of text that is drawn, with where it is."""
    return [(item.get_text(), item.get_window_extent()) for item in written(figure)]


# --- the model ----------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75),
     ("broadcast", 1), ("reduce", 1), ("sendrecv", 1)],
)  # fmt: skip
def test_bus_bandwidth_has_the_factors_of_nccl_tests(collective, factor):
    assert bus_bandwidth(collective, 8e9, 2.0, 4) == pytest.approx(factor * 4e9)


# --- bandwidth ----------------------------------------------------------------------------------


def test_bandwidth_draws_points_line_and_bound(drawn):
    shown = bandwidth(SIZES, line(1e-4, 1e-9), world_size=4)
    time, bus = drawn[0].axes
    points, fit = time.lines
    np.testing.assert_allclose(points.get_ydata(), line(1e-4, 1e-9))
    np.testing.assert_allclose(fit.get_ydata(), 1e-4 + 1e-9 * fit.get_xdata(), rtol=1e-6)
    np.testing.assert_allclose(
        bus.lines[0].get_ydata(), [1.5 * n / t / 1e9 for n, t in zip(SIZES, line(1e-4, 1e-9),
                                                                     strict=True)]
    )  # fmt: skip
    np.testing.assert_allclose(bus.lines[2].get_ydata(), 1.5)
    text = [word for word, _ in words(drawn[0])]
    assert "α = 100 µs, 1/β = 1 GB/s" in text
    assert "limit of the fit = 1.5 GB/s" in text
    assert text.count("message (bytes)") == 2
    assert {"time (seconds)", "bandwidth (GB/s)", "1 KiB", "1 MiB"} <= set(text)
    assert (time.get_title(loc="left"), bus.get_title(loc="left")) == (
        "Time per call",
        "Bus bandwidth",
    )
    assert "64 B to 16 MiB" in shown.text


def test_a_given_bound_is_drawn_instead(drawn):
    bandwidth(SIZES, line(1e-4, 1e-9), world_size=4, bound=25e9)
    bus = drawn[0].axes[1]
    np.testing.assert_allclose(bus.lines[-1].get_ydata(), 25)
    assert bus.get_ylim()[1] > 25
    assert "bound = 25 GB/s" in [word for word, _ in words(drawn[0])]


def test_several_curves_have_names_and_looks_of_their_own(drawn):
    pair = {"gloo": line(1e-4, 1e-9), "my ring": line(3e-4, 2e-9)}
    shown = bandwidth(SIZES, pair, world_size=4)
    gloo, _, ring, _ = drawn[0].axes[0].lines
    assert gloo.get_color() != ring.get_color()
    assert gloo.get_marker() != ring.get_marker()
    labels = [item.get_text() for item in drawn[0].axes[0].get_legend().get_texts()]
    assert [label.split(":")[0] for label in labels[:2]] == ["gloo", "my ring"]
    assert labels[2:] == ["limit of a fit, where a call costs nothing but β"]
    assert "of gloo, my ring" in shown.text


def test_the_order_of_the_points_does_not_matter(drawn):
    times = line(1e-4, 1e-9)
    for order in (1, -1):
        bandwidth(SIZES[::order], times[::order], world_size=4)
    one, other = (figure.axes[0].lines[0].get_xydata() for figure in drawn)
    np.testing.assert_array_equal(one, other)


def test_the_text_holds_no_measured_number():
    fast, slow = (bandwidth(SIZES, line(a, 1e-9), world_size=4).text for a in (1e-5, 1e-3))
    assert fast == slow
    one, other = (scaling([1, 2], [r, 1.5 * r]).text for r in (10.0, 1234.5))
    assert one == other
    one, other = (memory({"parameters": [n, n]}).text for n in (10.0, 5e9))
    assert one == other


# --- scaling ------------------------------------------------------------------------------------


def test_scaling_shows_efficiency_and_the_ideal(drawn):
    shown = scaling([1, 2, 4], [100, 180, 240], unit="tokens/s")
    text = [word for word, _ in words(drawn[0])]
    assert {"100%", "90%", "60%", "ranks", "throughput (tokens/s)", "ideal"} <= set(text)
    np.testing.assert_allclose(drawn[0].axes[0].lines[0].get_xydata(), [(0, 0), (4, 400)])
    assert "tokens/s against the number of ranks (1, 2, 4)" in shown.text


def test_scaling_starts_from_the_fewest_ranks(drawn):
    scaling([2, 8], [100, 300], ideal=False)
    assert "75%" in [word for word, _ in words(drawn[0])]
    assert len(drawn[0].axes[0].lines) == 1


def test_many_ranks_get_log_axes(drawn):
    scaling([1, 8, 64], [1, 7, 50])
    assert drawn[0].axes[0].get_xscale() == drawn[0].axes[0].get_yscale() == "log"


# --- memory -------------------------------------------------------------------------------------


def test_memory_stacks_parts_in_one_unit(drawn):
    parts = {"parameters": [4 * MIB, 4 * MIB], "optimizer state": [8 * MIB, MIB]}
    shown = memory(parts, title="ZeRO-1", exact=True)
    bottom, top = drawn[0].axes[0].containers
    assert [bar.get_height() for bar in bottom] == [4, 4]
    assert [(bar.get_y(), bar.get_height()) for bar in top] == [(4, 8), (4, 1)]
    text = [word for word, _ in words(drawn[0])]
    assert {"memory (MiB)", "rank 0", "rank 1", "12", "8", "5"} <= set(text)
    assert "rank 1: parameters 4 MiB, optimizer state 1 MiB" in shown.text.splitlines()


def test_memory_of_the_devices_of_one_process_says_device(drawn):
    shown = memory({"outputs": [MIB, 0]}, exact=True, each="device")
    assert {"device 0", "device 1"} <= {word for word, _ in words(drawn[0])}
    assert shown.text.splitlines()[1:] == [
        "device 0: outputs 1 MiB",
        "device 1: outputs 0 B",
        "A bar is the memory of one device, and its colours say what fills it.",
    ]


def test_bars_with_names_of_their_own(drawn):
    parts = {"parameters": [4 * MIB, 4 * MIB], "optimizer state": [8 * MIB, 1 * MIB]}
    shown = memory(parts, names=["Adam", "sharded"], exact=True)
    text = [word for word, _ in words(drawn[0])]
    assert {"Adam", "sharded"} <= set(text)
    assert "rank 0" not in text
    assert shown.text.startswith("Memory of Adam and sharded as stacked bars")
    assert "sharded: parameters 4 MiB, optimizer state 1 MiB" in shown.text.splitlines()


def test_a_part_too_thin_for_its_number_has_none(drawn):
    memory({"parameters": [1000 * MIB], "buffers": [2 * MIB]})
    assert "2" not in [item.get_text() for item in drawn[0].axes[0].texts]


def test_memory_of_nothing_can_be_drawn():
    assert memory({"gradients": [0]}).text.startswith("Memory of 1 rank as")


# --- every figure -------------------------------------------------------------------------------


FIGURES = {
    "bandwidth": lambda: bandwidth(SIZES, line(1e-4, 1e-9), world_size=4),
    "tiny messages": lambda: bandwidth([1, 2], [1.0, 1.1], world_size=2, collective="sendrecv"),
    "all decades": lambda: bandwidth([1, 2**40], [1e-6, 1e4], world_size=2),
    "constant": lambda: bandwidth([1, 2**20], [1.0, 1.0], world_size=2),
    "four curves": lambda: bandwidth(
        SIZES, {f"name {f}": line(f * 1e-4, f * 1e-9) for f in (1, 2, 3, 4)}, world_size=8
    ),
    "scaling": lambda: scaling([1, 2, 3, 4, 8], [1e6, 2e6, 2.5e6, 3.5e6, 5e6]),
    "cluster": lambda: scaling([8, 16, 64, 512], [1e6, 2e6, 7e6, 4e7], unit="tokens/s"),
    "two curves": lambda: scaling([1, 2, 4], {"DDP": [9, 17, 30], "FSDP": [7, 13, 24]}),
    "memory": lambda: memory({p: [n * MIB] * 4 for p, n in {"a": 1, "b": 0, "c": 1234}.items()}),
    "sixteen": lambda: memory({p: [123.4 * MIB] * 16 for p in "abcdef"}, title="all"),
    "named": lambda: memory({"a": [MIB, 9 * MIB]}, names=["Adam", "ZeroRedundancy"]),
    "a crowd": lambda: memory({"parameters": [1e12] * 32}),
}


@pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)
def test_words_do_not_overlap_and_the_figure_fits_a_page(draw, drawn):
    shown = draw()
    figure = drawn[0]
    assert figure.get_tightbbox().width <= MAX_WIDTH + 0.1
    # words on bars are black or white, whichever is right there (test_style)
    inks = {to_hex(item.get_color()) for item in written(figure)} - {"#ffffff", "#000000"}
    assert min(contrast(ink, CARD) for ink in inks) >= 4.5
    overlaps = [(a, b) for (a, x), (b, y) in combinations(words(figure), 2) if x.overlaps(y)]
    assert not overlaps
    assert all(axes.get_xlabel() or axes.get_xticklabels()[0].get_text() in ("rank 0", "Adam")
               for axes in figure.axes)  # fmt: skip
    assert shown.text.count(". ") < 5


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: fit_alpha_beta([1, 2], [1]), "sizes has 2 values, seconds 1: give pairs"),
        (lambda: fit_alpha_beta([8, 8], [1, 2]), "at least two different message sizes"),
        (lambda: fit_alpha_beta([], []), "sizes is empty"),
        (lambda: fit_alpha_beta([1, 2], [0, 1]), "seconds has values that are not above zero"),
        (lambda: fit_alpha_beta([1, float("nan")], [1, 1]), "sizes has values that are not"),
        (lambda: bus_bandwidth("gossip", 1, 1, 2), "'gossip': give one of all_reduce, all_gather"),
        (lambda: bus_bandwidth("all_reduce", 1, 1, 1), "at least 2 ranks, not 1"),
        (lambda: bus_bandwidth("all_reduce", 1, 0, 2), "must be above zero"),
        (lambda: bandwidth([1, 2], {}, world_size=2), "seconds has 0 curves; .* 1 to 4"),
        (lambda: bandwidth([1, 2], {"a": [1]}, world_size=2), r"seconds\['a'\] 1: give pairs"),
        (lambda: bandwidth([1, 2], [1, 2], world_size=2, bound=0), "bound is 0 bytes/s"),
        (lambda: scaling([0, 1], [1, 2]), "ranks has values that are not above zero"),
        (lambda: scaling([1, 1], [1, 2]), "ranks has a number twice"),
        (lambda: memory({}), "parts has 0 parts; a figure shows 1 to 6"),
        (lambda: memory({"a": [1], "b": [1, 2]}), "parts differ in their number of ranks"),
        (lambda: memory({"a": []}), "a figure shows 1 to 32 ranks, not 0"),
        (lambda: memory({"a": [1, 2]}, names=["one"]), "names has 1 names for 2 bars"),
        (lambda: memory({"a": [-1]}), "a has sizes that are below zero or missing"),
    ],
)
def test_what_does_not_fit_is_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
