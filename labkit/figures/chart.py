"""What charts are made of: axes with scales, series with looks, measured rounds, ticks, words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..base.errors import UsageError
from .style import (
    INK,
    LABEL_SIZE,
    MARKERS,
    SERIES,
    bytes_axis,
    format_bytes,
    new_figure,
    seconds_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")

#: For each x, the seconds of each round.
Rounds = Sequence[Sequence[float]]
#: Points, and lines through them.
POINTS: dict[str, Any] = {"linestyle": "", "markersize": 5, "markeredgewidth": 0, "zorder": 3,
                          "clip_on": False}  # fmt: skip
#: A bound or an ideal.
BOUND: dict[str, Any] = {"linestyle": (0, (5, 3)), "linewidth": 1.2}


def chart(
    width: float, height: float, *, x: int = 0, y: int = 0, panels: int = 1
) -> tuple[Figure, Any]:
    """Return a figure and its axes, or several beside each other; ``x`` and ``y`` are the bases of
    logarithmic scales, 0 for linear ones."""
    figure = new_figure(width, height)
    axes = figure.subplots(1, panels)
    for each in np.atleast_1d(axes):
        if x:
            each.set_xscale("log", base=x)
        if y:
            each.set_yscale("log", base=y)
    if panels > 1:
        figure.set_layout_engine("constrained", wspace=0.08)
    return figure, axes


def series(named: Mapping[str, T], what: str = "series") -> Iterator[tuple[str, T, str, str]]:
    """Yield the name, the values, a colour and a marker of each series.

    Raises
    ------
    UsageError
        If there are more than there are colours.
    """
    check_count(named, what)
    return zip(named, named.values(), SERIES, MARKERS, strict=False)


def check_count(named: Mapping[str, object], what: str, most: int = len(SERIES)) -> None:
    """Raise UsageError if there are more ``named`` things than a figure shows."""
    if len(named) > most:
        raise UsageError(f"there are {len(named)} {what}; a figure shows up to {most}")


def check_length(name: str, values: Sequence[object], what: str, others: Sequence[object]) -> None:
    """Raise UsageError if there is not one value for each of the others."""
    if len(values) != len(others):
        raise UsageError(f"{name} has {len(values)} {what} for {len(others)}")


def measured(
    x: Sequence[float], y: Sequence[float], x_name: str, y_name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return measured points as two arrays in the order of x, or say what is wrong with them."""
    points = [np.asarray(values, dtype=float).reshape(-1) for values in (x, y)]
    if len(points[0]) != len(points[1]):
        raise UsageError(
            f"{x_name} has {len(points[0])} values, {y_name} {len(points[1])}: give pairs"
        )
    if not len(points[0]):
        raise UsageError(f"{x_name} is empty: there is nothing to draw")
    for name, values in zip((x_name, y_name), points, strict=True):
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise UsageError(f"{name} has values that are not above zero")
    order = np.argsort(points[0], kind="stable")
    return points[0][order], points[1][order]


def draw_rounds(
    axes: Axes, x: Sequence[float], rounds: Rounds, name: str, colour: str, **look: Any
) -> None:
    """Draw the median of the rounds at each x, with a line from the fastest to the slowest.

    Raises
    ------
    UsageError
        If there is not at least one round for each x, or a time is not above zero.
    """
    if len(rounds) != len(x) or not all(len(own) for own in rounds):
        raise UsageError(f"{name} needs at least one round for each of {len(x)}")
    for end in (min, max):
        measured(x, [end(own) for own in rounds], "x", name)
    axes.vlines(x, [min(own) for own in rounds], [max(own) for own in rounds], color=colour,
                linewidth=1, alpha=0.6)  # fmt: skip
    axes.plot(*measured(x, [float(np.median(own)) for own in rounds], "x", name), color=colour,
              markersize=5, label=name, **look)  # fmt: skip


def draw_predicted(
    axes: Axes, x: Sequence[float], line: Sequence[float] | None, name: str, colour: str
) -> None:
    """Draw what was predicted as a dashed line, if it was."""
    if line is not None:
        axes.plot(*measured(x, line, "x", f"predicted[{name!r}]"), "--", color=colour,
                  linewidth=1.4)  # fmt: skip


def number_ticks(axes: Axes, numbers: Sequence[float], form: str = ",g") -> None:
    """Write these numbers, and no others, on the lower axis."""
    axes.set_xticks(numbers, [format(number, form) for number in numbers], color=INK)
    axes.minorticks_off()


def bytes_ticks(axes: Axes, sizes: Sequence[float] = ()) -> None:
    """Put at most six ticks, with room for their units: below points at these sizes (all of them,
    each second one, …), or at powers of two."""
    from matplotlib.ticker import FixedLocator

    places = sorted(set(sizes))
    places = places[:: -(-len(places) // 6) or 1]
    if not places:
        low, high = np.log2(axes.get_xlim())
        step = next(s for s in (1, 2, 3, 5, 10, 20) if (high - low) / s < 6)
        # steps that meet at 2¹⁰, 2²⁰: 1 KiB and 1 MiB are read at a glance
        places = (2.0 ** np.arange(np.ceil(low / step) * step, high, step)).tolist()
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.minorticks_off()
    bytes_axis(axes.xaxis)


def log_ticks(axes: Axes) -> None:
    """Put ticks on a log axis at powers of ten, and between them where those are too few."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = axes.get_ylim()
    if high < 5 * low:
        axes.yaxis.set_major_locator(MaxNLocator(5))
    else:
        axes.yaxis.set_major_locator(LogLocator(10, (1.0, 2, 5) if high < 200 * low else (1.0,)))
    axes.minorticks_off()


def seconds_ticks(axes: Axes) -> None:
    """Write the ticks of a log axis in seconds."""
    log_ticks(axes)
    seconds_axis(axes.yaxis)


def plain_ticks(axes: Axes) -> None:
    """Write the ticks of an axis as plain numbers."""
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")


def head(figure: Figure, title: str, size: float = LABEL_SIZE) -> None:
    """Write a title above several panels."""
    if title:
        figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=size, weight="bold")


def titled(title: str, text: str) -> str:
    """Return a sentence after a title, if there is one."""
    return f"{title}: {text[0].lower()}{text[1:]}" if title else text


def byte_range(sizes: Sequence[float]) -> str:
    """Return the ends of a range of sizes in words."""
    return f"{format_bytes(min(sizes))} to {format_bytes(max(sizes))}"
