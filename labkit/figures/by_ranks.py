"""Draw formulas against the number of ranks, with what was counted on a few of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..errors import UsageError
from .picture import Picture
from .style import INK, MARKERS, NOTE_SIZE, SERIES, ink_of, new_figure, style_axes

#: A number of ranks -> a value.
ByRanks = Mapping[int, float]
#: Least distance between two names at the ends of lines, in powers of the axis' base.
APART = 0.4


def by_ranks(
    lines: Mapping[str, ByRanks],
    points: Mapping[str, ByRanks] | None = None,
    *,
    title: str = "",
    ylabel: str = "",
    how_to_read: str = "",
) -> Picture:
    """Draw how costs grow with the number of ranks, on logarithmic axes.

    Parameters
    ----------
    lines
        By name, up to four: what a formula gives for some numbers of ranks. Values that are not
        above zero are left out, and so is a line of which nothing is left.
    points
        By the same names: what was counted.

    Returns
    -------
    Picture
        Lines with their names at the right end, and points. The text holds the values at the
        ends of the lines.

    Raises
    ------
    UsageError
        If there are more than four names, or points without a line's name.

    Examples
    --------
    >>> lines = {"server": {2: 2, 4: 6, 64: 126}, "ring": {2: 1, 4: 1.5, 64: 1.97}}
    >>> picture = labkit.figures.by_ranks(lines, {"ring": {4: 1.5}}, title="Tensors sent")
    >>> print(picture.text.splitlines()[0])
    Tensors sent, against the number of ranks: server 2 at 2 ranks, 126 at 64; ring 1 at 2 ranks, \
1.97 at 64. Counted points: ring at 4.
    """
    points = points or {}
    if len(lines) > len(SERIES):
        raise UsageError(f"there are {len(lines)} lines; a figure shows up to {len(SERIES)}")
    if strange := [name for name in points if name not in lines]:
        raise UsageError(f"points names {strange[0]!r}, which is no line")
    figure = new_figure(6.4, 3.4)
    axes = figure.subplots()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    ends, told, ticks = [], [], set()
    for (name, values), colour, marker in zip(lines.items(), SERIES, MARKERS, strict=False):
        drawn = {n: value for n, value in sorted(values.items()) if value > 0}
        counted = {n: value for n, value in points.get(name, {}).items() if value > 0}
        ticks |= {*drawn, *counted}
        if drawn:
            axes.plot([*drawn], [*drawn.values()], color=colour, linewidth=1.4)
            first, last = min(drawn), max(drawn)
            low, high = drawn[first], drawn[last]
            ends.append((np.log2(high), last, name, colour))
            told.append(f"{name} {low:.3g} at {first} ranks, {high:.3g} at {last}")
        axes.plot([*counted], [*counted.values()], marker, color=colour, zorder=3)
    lowest = -np.inf
    for height, last, name, colour in sorted(ends):
        lowest = max(height, lowest + APART)  # names of lines that meet stand above each other
        axes.annotate(name, (last, 2.0**lowest), xytext=(6, 0), textcoords="offset points",
                      va="center", color=ink_of(colour), fontsize=NOTE_SIZE)  # fmt: skip
    style_axes(axes, title=title, xlabel="ranks", ylabel=ylabel)
    powers = sorted(n for n in ticks if n & (n - 1) == 0)
    axes.set_xticks(powers, [str(n) for n in powers], color=INK)
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    dots = [
        f"{name} at {', '.join(str(n) for n in sorted(own))}" for name, own in points.items() if own
    ]
    text = (
        f"{title + ', against' if title else 'Against'} the number of ranks: "
        f"{'; '.join(told) or 'nothing'}."
        f"{' Counted points: ' + '; '.join(dots) + '.' if dots else ''}"
    )
    return Picture(figure, text, how_to_read)
