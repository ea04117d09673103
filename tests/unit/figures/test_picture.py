"""A picture is a white card with even margins, reading help, and a text that says the same."""

import io
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from labkit.base.errors import DataError, UsageError
from labkit.figures import Picture, new_figure, picture, style_axes
from labkit.figures.style import DPI, SHOWN_DPI

LONG = "One sentence that is much too long to stand in one line under so small a figure as this. "


def pixels(shown):
    """Red, green, blue and alpha, 0 to 255."""
    return np.asarray(Image.open(io.BytesIO(shown.png)).convert("RGBA")).astype(int)


def plot(ylabel="loss"):
    figure = new_figure(3, 2)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1])
    style_axes(axes, title="A title", xlabel="step", ylabel=ylabel)
    return figure


def ink(shown):
    """The box around everything on the card: left, top, right and bottom margin in inches."""
    inside = 12  # pixels of the card's edge and its round corners
    dark = pixels(shown)[inside:-inside, inside:-inside, :3].min(axis=-1) < 245
    rows, columns = dark.any(axis=1).nonzero()[0], dark.any(axis=0).nonzero()[0]
    return [
        (inside + edge) / DPI
        for edge in (columns[0], rows[0], dark.shape[1] - columns[-1], dark.shape[0] - rows[-1])
    ]


def test_the_card_is_white_with_round_corners():
    rgba = pixels(Picture(plot(), "text"))
    assert (rgba[[0, 0, -1, -1], [0, -1, 0, -1], 3] < 60).all()
    assert (rgba[10:-10, 10:-10, 3] >= 254).all()
    assert rgba[10:25, 10:-10].min() >= 254


@pytest.mark.parametrize(
    ("help_text", "ylabel"),
    [
        ("", "loss"),
        ("Short.", "loss"),
        (LONG, "a label that is a good deal longer than this"),
    ],
)
def test_nothing_is_clipped_and_margins_are_even(help_text, ylabel):
    margins = ink(Picture(plot(ylabel), "text", help_text))
    assert min(margins) >= picture.MARGIN - 0.03
    left, top, _, bottom = margins
    assert max(left, top, bottom) <= picture.MARGIN + 0.05


def test_reading_help_is_under_the_figure_and_wrapped():
    bare, short, long = (Picture(plot(), "text", help) for help in ("", "Short.", LONG))
    heights = [pixels(shown).shape[0] for shown in (bare, short, long)]
    assert heights[0] < heights[1] < heights[2]
    assert long.width <= (picture.NARROWEST_NOTE + 2 * picture.MARGIN) * SHOWN_DPI + 1


def test_text_and_alt_end_with_the_reading_help():
    shown = Picture(plot(), "A falling line.", "Lower is better.")
    data, metadata = shown._repr_mimebundle_()
    assert repr(shown) == data["text/plain"] == "A falling line.\nLower is better."
    assert metadata["image/png"]["alt"] == repr(shown)
    assert repr(Picture(plot(), "A falling line.")) == "A falling line."


def test_shown_at_half_its_pixels():
    shown = Picture(plot(), "text")
    metadata = shown._repr_mimebundle_()[1]["image/png"]
    assert abs(metadata["width"] * DPI / SHOWN_DPI - pixels(shown).shape[1]) <= 2


def test_the_same_figure_gives_the_same_file_and_is_left_alone():
    figure = plot()
    one = Picture(figure, "text", "help")
    assert Picture(figure, "text", "help").png == one.png == Picture(plot(), "text", "help").png
    assert not figure.texts
    assert not figure.patches


def test_any_figure_will_do():
    figure = Figure(figsize=(3, 2), dpi=72)
    figure.add_subplot().imshow(np.arange(6).reshape(2, 3))
    assert min(ink(Picture(figure, "an image"))) >= picture.MARGIN - 0.03


def test_a_photograph_keeps_its_colours():
    noise = np.random.default_rng(0).random((150, 150, 3))
    figure = Figure(figsize=(2, 2))
    figure.add_axes((0, 0, 1, 1)).imshow(noise)
    assert len(np.unique(pixels(Picture(figure, "noise")).reshape(-1, 4), axis=0)) > 10_000


def test_global_settings_stay_and_do_not_matter():
    before = dict(matplotlib.rcParams)
    plain = Picture(plot(), "text", "help").png
    assert dict(matplotlib.rcParams) == before
    with matplotlib.rc_context({"axes.facecolor": "black", "text.color": "white",
                                "axes.labelcolor": "white", "figure.facecolor": "black",
                                "savefig.facecolor": "black", "figure.dpi": 50}):  # fmt: skip
        assert Picture(plot(), "text", "help").png == plain


def test_it_is_saved_as_it_is_shown_or_sharp_at_any_size(tmp_path):
    shown = Picture(plot(), "1 < 2\nA falling line.", "Lower is better.")
    shown.save(tmp_path / "new" / "a.png")
    assert (tmp_path / "new" / "a.png").read_bytes() == shown.png
    for name in ("a.svg", "b.svg"):
        shown.save(str(tmp_path / name))
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    svg = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert svg.attrib["role"] == "img"
    assert svg.attrib["aria-label"].split() == shown.text.split()  # XML reads a line's end as space
    points = float(svg.attrib["width"].removesuffix("pt"))
    assert points / 72 * SHOWN_DPI == pytest.approx(shown.width, abs=1)


def test_what_cannot_be_saved_says_why_and_changes_nothing(tmp_path):
    (tmp_path / "a.png").mkdir()
    shown = Picture(plot(), "text")
    with pytest.raises(UsageError, match=r"saved as .png or .svg, not as 'a.jpg'"):
        shown.save(tmp_path / "a.jpg")
    with pytest.raises(DataError, match=r"Cannot write .*a.png: Is a directory\.$"):
        shown.save(tmp_path / "a.png")
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
