"""Give every figure of the course the same look: sizes, ink, grid, units, colours of work.

A figure is a white card that stands on JupyterLab's light and dark pages alike. Build it from
:func:`new_figure`, pass each of its axes through :func:`style_axes`, and wrap it in a
:class:`~labkit.figures.picture.Picture`. Nothing here touches pyplot or matplotlib's global
settings, and matplotlib is imported only when something is drawn: labkit starts without it, and
without the extra [figures] a figure says what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..base import versions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

#: Text, axes and everything that belongs to no rank.
INK = "#333333"
#: Text that explains: reading help, column heads, what was left out.
SOFT_INK = "#5C5C5C"
#: Spines and ticks: seen when looked for.
LINE = "#9A9A9A"
#: Hatching, light enough to read a word on it.
HATCH = "#B8B8B8"
#: Grid lines: they help the eye and never compete with the data.
GRID = "#E6E6E6"
#: The card that every figure is drawn on, and its edge.
CARD = "#FFFFFF"
CARD_EDGE = "#D4D4D4"
#: Values that no single rank held before: sums, maxima, products.
COMBINED = "#646464"

#: Dots an inch in the PNG, and in the notebook: twice as fine as it is shown, sharp on any screen.
DPI = 192
SHOWN_DPI = 96
#: Widest figure in inches that JupyterLab shows unscaled beside an open file browser.
MAX_WIDTH = 8.0

#: Font sizes in points; 10 points are as tall as the text of a notebook.
TITLE_SIZE = 11
LABEL_SIZE = 10
TICK_SIZE = 9
NOTE_SIZE = 9


@dataclass(frozen=True)
class Look:
    """How a kind of work is drawn."""

    colour: str
    hatch: str = ""


#: What a rank spends its time on. From light to dark the kinds are at least seven steps of
#: lightness apart (L*, of 100), so that they differ in grey print and for colour-blind readers;
#: communication, the one to look at, is the only red. Measured by
#: ``tests/unit/figures/test_style.py``.
WORK = {
    "data loading": Look("#F5D577"),
    "forward": Look("#8FC1EA"),
    "backward": Look("#1B3F86"),
    "communication": Look("#B8322A"),
    "optimizer": Look("#9A66C4"),
    "waiting": Look("#F0F0F0", hatch="////"),
    "other": Look("#9C9C9C"),
}

#: Curves, dark enough for lines on white; never the colours of ranks, which mean ranks. From Paul
#: Tol's medium-contrast scheme (SRON/EPS/TN/09-002), made for colour-blind readers and grey print.
SERIES = ("#004488", "#994455", "#997700", "#6699CC")
MARKERS = ("o", "s", "^", "D")
#: Parts of a stacked bar: the same scheme, light beside dark.
PARTS = ("#004488", "#6699CC", "#EECC66", "#994455", "#EE99AA", "#997700")

_BYTES = ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, "B"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def new_figure(width: float = 6.4, height: float = 3.2) -> Figure:
    """Return an empty figure of a size in inches, which keeps its labels from overlapping.

    It belongs to no pyplot state: nothing shows it twice and nothing has to close it.

    Examples
    --------
    >>> figure = labkit.figures.new_figure(width=5, height=2)
    >>> axes = figure.add_subplot()
    >>> figure.get_size_inches().tolist()
    [5.0, 2.0]
    """
    versions.need("figures", "A figure", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(
        figsize=(min(width, MAX_WIDTH), height), dpi=DPI, layout="constrained", facecolor=CARD
    )


def style_axes(
    axes: Axes,
    *,
    title: str = "",
    xlabel: str = "",
    ylabel: str = "",
    grid: Literal["both", "x", "y", ""] = "both",
) -> None:
    """Give axes the house style; call it after the scales are set.

    Put the unit into the labels: ``time per call (seconds)``.

    Examples
    --------
    >>> axes = labkit.figures.new_figure().add_subplot()
    >>> line = axes.loglog([1, 10, 100], [2, 3, 12])
    >>> labkit.figures.style_axes(axes, xlabel="size (bytes)", ylabel="time per call (µs)")
    >>> axes.get_xlabel()
    'size (bytes)'
    """
    axes.set_facecolor(CARD)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE)
    axes.tick_params(which="both", color=LINE, labelcolor=INK, labelsize=TICK_SIZE)
    axes.tick_params(which="minor", length=0)
    axes.set_axisbelow(True)
    axes.grid(False, which="both")
    if grid:
        axes.grid(True, which="major", axis=grid, color=GRID, linewidth=0.8, linestyle="-")
    axes.set_xlabel(xlabel or axes.get_xlabel(), color=INK, fontsize=LABEL_SIZE)
    axes.set_ylabel(ylabel or axes.get_ylabel(), color=INK, fontsize=LABEL_SIZE)
    if title:
        axes.set_title(title, loc="left", color=INK, fontsize=TITLE_SIZE, weight="bold", pad=8)


def style_legend(axes: Axes, *content: Any, **options: Any) -> None:
    """Draw the legend of axes on the card's white, so that grid lines stop short of its words.

    Parameters are those of ``Axes.legend``.
    """
    look = {"facecolor": CARD, "edgecolor": "none", "framealpha": 0.9, "borderpad": 0.2}
    axes.legend(*content, **{**look, "labelcolor": INK, "fontsize": TICK_SIZE, **options})


def work_style(kind: str) -> dict[str, Any]:
    """Return what ``Axes.barh`` or a patch needs to draw a kind of work, by its name in ``WORK``.

    Waiting is hatched, so that it is told from work also without colour.
    """
    look = WORK[kind]
    return {
        "facecolor": look.colour,
        "hatch": look.hatch,
        # matplotlib draws the hatch in the colour of the edge
        "edgecolor": HATCH if look.hatch else CARD,
        "linewidth": 0.5,
    }


#: Contrast that WCAG 2.2 asks of text (level AA).
READABLE = 4.5


def text_on(colour: str) -> str:
    """Return black or white, whichever is easier to read on a colour (contrast of 4.5 or more).

    Contrast is WCAG 2.2's, which weighs the linear light of the three primaries.
    """
    light = _luminance(colour)
    return "white" if 1.05 / (light + 0.05) > (light + 0.05) / 0.05 else "black"


def ink_of(colour: str) -> str:
    """Return a colour for text on a figure's card: the same, or darker until it can be read."""
    versions.need("figures", "A figure", "matplotlib")
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = to_rgb(colour)
    shade, share = colour, 1.0
    while 1.05 / (_luminance(shade) + 0.05) < READABLE:
        share -= 0.02
        shade = to_hex((share * red, share * green, share * blue))
    return shade


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour, 0 to 1."""
    from matplotlib.colors import to_rgb

    light = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2]


def bytes_unit(largest: float) -> tuple[float, str]:
    """Return the unit for an axis that ends at ``largest`` bytes: its size in bytes, its name."""
    return next((unit for unit in _BYTES if largest >= unit[0]), _BYTES[-1])


def seconds_unit(largest: float) -> tuple[float, str]:
    """Return the unit for an axis that ends at ``largest`` seconds: its size in s, its name."""
    return next((unit for unit in _SECONDS if largest >= unit[0]), _SECONDS[-1])


def format_bytes(size: float) -> str:
    """Write a number of bytes with binary units: ``64 B``, ``1.5 KiB``, ``1 MiB``."""
    return _with_unit(size, *bytes_unit(abs(size)))


def format_seconds(seconds: float) -> str:
    """Write a duration: ``250 µs``, ``1.5 ms``, ``2 s``."""
    return _with_unit(seconds, *seconds_unit(abs(seconds)))


def bytes_axis(axis: Axis) -> None:
    """Write the ticks of an axis in bytes as ``64 B``, ``1 KiB``; on a log scale of base 2."""
    axis.set_major_formatter(lambda value, _: format_bytes(value))


def seconds_axis(axis: Axis) -> None:
    """Write the ticks of a log axis in seconds as ``10 µs``, ``1 ms``, ``1 s``.

    For a linear axis divide by :func:`seconds_unit` and name the unit in the label instead.
    """
    axis.set_major_formatter(lambda value, _: format_seconds(value))


def _with_unit(value: float, unit: float, name: str) -> str:
    scaled = value / unit
    return f"{scaled:.0f} {name}" if abs(scaled) >= 100 else f"{scaled:.3g} {name}"
