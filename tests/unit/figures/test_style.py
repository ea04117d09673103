"""The house style: colours of work can be told apart, units are written as people read them."""

import doctest
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest

import labkit
from labkit import figures
from labkit.base import versions
from labkit.base.rank_names import RANK_COLOURS
from labkit.figures import ring, style
from labkit.figures.canvas import ANYBODYS
from labkit.figures.style import (
    CARD,
    COMBINED,
    GRID,
    INK,
    PARTS,
    SERIES,
    SOFT_INK,
    WORK,
    bytes_unit,
    format_bytes,
    format_seconds,
    ink_of,
    new_figure,
    seconds_unit,
    style_axes,
    text_on,
)

from ..base.test_rank_colours import SIGHTS, contrast, linear, seen


def lightness(colour):
    """CIE L*, 0 to 100: what grey print keeps of a colour."""
    return 116 * np.cbrt(linear(colour) @ [0.2126, 0.7152, 0.0722]) - 16


#: What counts or measures, and what draws a lab's ranks.
DRAW_NOTHING = {"AlphaBeta", "count_rounds", "fit_alpha_beta", "idle", "rank_colour", "processes"}


@pytest.mark.parametrize("name", sorted(set(figures.__all__) - DRAW_NOTHING))
def test_without_matplotlib_every_figure_says_what_it_needs(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    versions.need.cache_clear()
    examples = doctest.DocTestParser().get_examples(getattr(figures, name).__doc__)
    source = "".join(example.source for example in examples)
    with pytest.raises(labkit.LabError, match=r"^A figure needs matplotlib, which is not inst"):
        exec(source, {"labkit": labkit})


def test_importing_figures_leaves_matplotlib_alone():
    code = (
        "import sys, labkit, labkit.figures.style, labkit.figures; labkit.figures.before_after\n"
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("sight", SIGHTS.values(), ids=SIGHTS)
@pytest.mark.parametrize(
    ("colours", "apart"),
    [([look.colour for look in WORK.values()], 0.11), (SERIES, 0.1), (PARTS, 0.08)],
    ids=["work", "series", "parts"],
)
def test_colours_are_told_apart(colours, apart, sight):
    pairs = combinations(colours, 2)
    assert min(np.linalg.norm(seen(a, sight) - seen(b, sight)) for a, b in pairs) >= apart


def test_work_is_told_apart_in_grey():
    steps = np.diff(sorted(lightness(look.colour) for look in WORK.values()))
    assert steps.min() >= 7
    assert [kind for kind, look in WORK.items() if look.hatch] == ["waiting"]


#: What words are written on: the card is white in JupyterLab's light theme and in the dark one.
BACKGROUNDS = {
    *RANK_COLOURS, *PARTS, *SERIES, *(look.colour for look in WORK.values()),
    COMBINED, ANYBODYS, GRID, CARD, ring.COMPLETE, ring.STRANGE,
    *(ring._shade(frozenset(range(k)), n) for n in range(2, 9) for k in range(1, n + 1)),
}  # fmt: skip


@pytest.mark.parametrize("colour", sorted(BACKGROUNDS))
def test_text_on_a_colour_can_be_read(colour):
    assert contrast(text_on(colour), colour) >= 4.5


@pytest.mark.parametrize("colour", sorted({*RANK_COLOURS, *SERIES, *PARTS}))
def test_text_in_a_colour_can_be_read_on_the_card(colour):
    ink = ink_of(colour)
    assert contrast(ink, CARD) >= 4.5
    assert contrast(colour, CARD) < 4.5 or ink == colour
    # darker, and no other colour
    darker = linear(ink)[linear(colour) > 0.02] / linear(colour)[linear(colour) > 0.02]
    assert np.ptp(darker) < 0.06
    assert darker.max() <= 1.001


@pytest.mark.parametrize("ink", [INK, SOFT_INK])
@pytest.mark.parametrize("background", [CARD, GRID])
def test_words_of_no_rank_can_be_read(ink, background):
    assert contrast(ink, background) >= 4.5


def test_lines_stand_out_from_the_card():
    assert min(contrast(colour, CARD) for colour in SERIES) >= 3


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (64, "64 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"),
     (1023 * 1024, "1023 KiB"), (2**20, "1 MiB"), (5 * 2**30, "5 GiB"), (2**42, "4 TiB")],
)  # fmt: skip
def test_bytes(size, text):
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ns"), (3e-9, "3 ns"), (1e-5, "10 µs"), (250e-6, "250 µs"), (0.0015, "1.5 ms"),
     (0.1, "100 ms"), (1, "1 s"), (3600, "3600 s")],
)  # fmt: skip
def test_seconds(seconds, text):
    assert format_seconds(seconds) == text


def test_one_unit_for_an_axis():
    assert seconds_unit(0.25) == (1e-3, "ms")
    assert bytes_unit(3 * 2**20) == (2**20, "MiB")


def test_axes_have_no_box_and_a_light_grid():
    axes = new_figure(3, 2).subplots()
    axes.plot([1, 2])
    style_axes(axes, title="title", xlabel="step", ylabel="loss", grid="y")
    assert not axes.spines["top"].get_visible()
    assert not axes.spines["right"].get_visible()
    assert [line.get_visible() for line in axes.get_xgridlines()[:1]] == [False]
    assert axes.get_ygridlines()[0].get_color() == style.GRID
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "loss")
    assert axes.get_title(loc="left") == "title"
    assert axes.title.get_fontsize() >= axes.xaxis.label.get_fontsize()


def test_a_figure_is_no_wider_than_a_page_and_no_pyplot_figure():
    figure = new_figure(20, 3)
    assert figure.get_figwidth() == style.MAX_WIDTH
    assert getattr(figure, "number", None) is None
