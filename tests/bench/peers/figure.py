"""Draw start and empty cell of all peers in the course's style, one above the other.

So the figure is as wide as a telephone's page, and its text is legible there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from labkit.figures.style import (
    CARD,
    GRID,
    INK,
    MARKERS,
    NOTE_SIZE,
    SERIES,
    SOFT_INK,
    TICK_SIZE,
    format_seconds,
    new_figure,
    seconds_axis,
    style_axes,
)

from .measure import middle
from .result import Result

#: Inches: the width, a row, and for each panel what is not rows.
WIDTH, ROW, BESIDE = 5.2, 0.38, 0.95


def draw(results: Sequence[Result], sizes: Sequence[int], path: Path) -> None:
    """Draw the figure into ``path`` with the endings .png and .svg."""
    figure = new_figure(width=WIDTH, height=2 * (BESIDE + ROW * len(results)))
    start, cell = figure.subplots(2, 1)
    for number, ranks in enumerate(sizes):
        looks = {"color": SERIES[number], "marker": MARKERS[number], "label": f"{ranks} ranks"}
        dots(start, [middle(result.starts(ranks)) for result in results], number, looks)
        dots(cell, [middle(result.calls(ranks)) for result in results], number, looks)
    for row, result in enumerate(results):
        if not result.peer.calls and result.sessions:
            middle_of_axes = cell.get_yaxis_transform()
            cell.text(0.02, row, "no cells: a new run", transform=middle_of_axes, va="center",
                      color=SOFT_INK, fontsize=NOTE_SIZE)  # fmt: skip
        elif not result.sessions:
            start.text(0.02, row, "not measured", transform=start.get_yaxis_transform(),
                       va="center", color=SOFT_INK, fontsize=NOTE_SIZE)  # fmt: skip
    titles = ("Start to the first all_reduce", "Empty cell or call")
    for axes, title in zip((start, cell), titles, strict=True):
        axes.set_xscale("log")
        style_axes(axes, title=title, xlabel="time, log scale (left is better)", grid="x")
        seconds_axis(axes.xaxis)
        axes.xaxis.set_minor_formatter("")
        axes.margins(x=0.2)
        for row in range(1, len(results)):
            axes.axhline(row - 0.5, color=GRID, linewidth=0.8, zorder=0)
        axes.set_ylim(len(results) - 0.5, -0.5)
        axes.set_yticks(range(len(results)), [result.peer.label for result in results])
        axes.tick_params(axis="y", length=0)
        for label in axes.get_yticklabels():
            label.set_weight("bold" if label.get_text() == "labkit" else "normal")
    start.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    figure.legend(
        *start.get_legend_handles_labels(), loc="outside upper right", ncols=len(sizes),
        frameon=False, labelcolor=INK, fontsize=TICK_SIZE,
    )  # fmt: skip
    for ending in (".png", ".svg"):
        figure.savefig(path.with_suffix(ending), facecolor=CARD)


def dots(axes: Axes, values: Sequence[float | None], number: int, looks: dict[str, str]) -> None:
    """Draw one dot per row where there is a value, with its value beside it."""
    rows = [(value, row) for row, value in enumerate(values) if value is not None]
    if not rows:
        return
    shift = -0.17 if number == 0 else 0.17
    axes.plot(
        [value for value, _ in rows], [row + shift for _, row in rows], linestyle="", markersize=5,
        **looks,
    )  # fmt: skip
    for value, row in rows:
        axes.annotate(
            format_seconds(float(f"{value:.2g}")), (value, row + shift), xytext=(6, 0),
            textcoords="offset points", va="center", color=INK, fontsize=NOTE_SIZE - 1,
        )  # fmt: skip
