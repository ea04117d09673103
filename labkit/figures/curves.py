"""Draw what ``lab.watch`` has seen: as small SVGs while a cell runs, as a figure at its end.

matplotlib takes a tenth of a second for a figure, which the ranks would miss twice a second; the
SVG takes a hundredth of that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ..base.rank_names import label, rank_colour
from .picture import Picture
from .style import COMBINED, GRID, INK, TICK_SIZE, new_figure, style_axes

#: Size of one SVG in CSS pixels, and of what is around its curves.
WIDTH, HEIGHT = 320, 150
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 8, 20
#: Panels beside each other in a figure, and curves that its legend names.
ACROSS, NAMED = 2, 8


@dataclass(frozen=True)
class Line:
    """What some ranks have: equal values at equal places."""

    ranks: Sequence[int]
    xs: Sequence[float]
    ys: Sequence[float | None]  #: None where a value is not finite

    @property
    def colour(self) -> str:
        """The colour of the rank, a grey for several."""
        return rank_colour(self.ranks[0]) if len(self.ranks) == 1 else COMBINED


@dataclass(frozen=True)
class Panel:
    """The curves of one variable."""

    name: str
    xlabel: str
    lines: Sequence[Line]


def as_svg(panel: Panel) -> str:
    """Return a panel as HTML around an SVG, in the colours of the page."""
    finite = [y for line in panel.lines for y in line.ys if y is not None]
    xs = [x for line in panel.lines for x in line.xs]
    ends = [
        f'<span style="white-space: nowrap"><b style="color: {line.colour}">{label(line.ranks)}'
        f"</b> {_number(line.ys)}</span>"
        for line in panel.lines[:NAMED]
    ]
    more = " …" if len(panel.lines) > NAMED else ""
    head = (
        f'<div style="width: {WIDTH}px; line-height: 1.4"><b>{escape(panel.name)}</b> '
        f"{' '.join(ends)}{more}</div>"
    )
    if not finite:
        return f"<div>{head}</div>"
    low, high = _spread(min(finite), max(finite))
    first, last = _spread(min(xs), max(xs))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - first) / (last - first) * (WIDTH - LEFT - RIGHT)
        up = (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return LEFT + across, HEIGHT - BOTTOM - up

    parts = []
    for tick in _ticks(low, high):
        _, y = place(first, tick)
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" '
            f'stroke="var(--jp-border-color2, {GRID})"></path>'
            f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{tick:g}</text>'
        )
    for x, anchor in ((min(xs), "start"), (max(xs), "end")):
        parts.append(
            f'<text x="{place(x, low)[0]:.1f}" y="{HEIGHT - 5}" text-anchor="{anchor}">'
            f"{_place(x)}</text>"
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 5}" text-anchor="middle">'
        f"{escape(panel.xlabel)}</text>"
    )
    for line in panel.lines:
        path = "".join(
            "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in (place(*point) for point in piece))
            for piece in _pieces(line)
        )
        parts.append(
            f'<path d="{path}" fill="none" stroke="{line.colour}" stroke-width="1.5" '
            f'stroke-linejoin="round" stroke-linecap="round"></path>'
        )
    ink = f"var(--jp-ui-font-color1, {INK})"
    return (
        f'<div>{head}<svg role="img" aria-label="{escape(describe([panel]), quote=True)}" '
        f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-size="10" fill="{ink}">{"".join(parts)}</svg></div>'
    )


def as_picture(panels: Sequence[Panel]) -> Picture:
    """Return all panels as one figure."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    down, across = math.ceil(len(panels) / ACROSS), min(len(panels), ACROSS)
    figure = new_figure(5.6 if across == 1 else 8.0, 2.4 * down)
    drawn = np.atleast_1d(figure.subplots(down, across)).ravel()
    for axes in drawn[len(panels) :]:
        axes.remove()
    for axes, panel in zip(drawn, panels, strict=False):
        for line in panel.lines:
            ys = [math.nan if y is None else y for y in line.ys]
            # One value alone has no line.
            axes.plot(line.xs, ys, "." if len(ys) == 1 else "-", color=line.colour, linewidth=1.4,
                      label=label(line.ranks))  # fmt: skip
        whole = panel.xlabel == "index"
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=whole, steps=[1, 2, 5, 10]))
        style_axes(axes, title=panel.name, xlabel=panel.xlabel)
    # One legend for all: a rank has its colour in each panel.
    named: dict[Any, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(named.values())[:NAMED],
        list(named)[:NAMED],
        loc="outside upper right",
        ncols=4,
        frameon=False,
        labelcolor=INK,
        fontsize=TICK_SIZE,
    )
    return Picture(figure, describe(panels))


def describe(panels: Sequence[Panel]) -> str:
    """Return the alt text, without a measured number: nbval compares it."""
    sentences = []
    for panel in panels:
        ranks = sorted({rank for line in panel.lines for rank in line.ranks})
        equal = len(panel.lines) == 1 and len(ranks) > 1
        how = "equal on" if equal else "one curve per rank, on" if len(ranks) > 1 else "on"
        against = "the time in seconds" if panel.xlabel == "seconds" else f"the {panel.xlabel}"
        sentences.append(f"{panel.name} against {against}: {how} {label(ranks)}.")
    return "\n".join(sentences)


def _pieces(line: Line) -> Iterator[list[tuple[float, float]]]:
    """Yield the parts of a line between values that are not finite; a lone point as a short line,
    which round ends make a dot."""
    piece: list[tuple[float, float]] = []
    for x, y in (*zip(line.xs, line.ys, strict=True), (0, None)):
        if y is not None:
            piece.append((x, y))
        elif piece:
            yield piece if len(piece) > 1 else piece * 2
            piece = []


def _number(ys: Sequence[float | None]) -> str:
    if not ys:
        return "–"
    return "not finite" if ys[-1] is None else f"{ys[-1]:.4g}"


def _place(x: float) -> str:
    return f"{x:.3g}" if isinstance(x, float) else f"{x:,}"


def _spread(low: float, high: float) -> tuple[float, float]:
    """Return the ends of an axis, which are not the same."""
    if low < high:
        return low, high
    half = abs(low) / 2 or 0.5
    return low - half, high + half


def _ticks(low: float, high: float) -> list[float]:
    """Return two to five round numbers between the ends of an axis."""
    power = 10.0 ** math.floor(math.log10(high - low))
    step = next(s * power for s in (0.25, 0.5, 1, 2) if (high - low) / (s * power) < 5)
    first = math.ceil(low / step)
    return [float(f"{n * step:.10g}") for n in range(first, math.floor(high / step) + 1)]
