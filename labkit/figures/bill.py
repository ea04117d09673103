"""Draw what training costs: steps against their batch, and what saving and failures take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UsageError
from .costs import measured
from .picture import Picture
from .style import (
    GRID,
    MARKERS,
    SERIES,
    new_figure,
    seconds_axis,
    style_axes,
    style_legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What an interval may cost more than the best one and still lie in the band, of the best's cost.
FLAT = 0.1
#: Ticks of an axis of intervals: seconds to days, as people say them.
CLOCK = {1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36000: "10 h"}


def step_times(
    rows: Sequence[float],
    seconds: Mapping[str, Sequence[Sequence[float]]],
    predicted: Mapping[str, Sequence[float] | None] | None = None,
    *,
    hidden_from: float | None = None,
    title: str = "",
    how_to_read: str = "",
) -> Picture:
    """Draw the time of a training step against the rows per rank, with what was predicted for it.

    Parameters
    ----------
    rows
        Rows per rank, at least two different numbers.
    seconds
        By name, up to four: for each number of rows, the seconds of every round.
    predicted
        By the same names, the predicted seconds for each number of rows; None where there is no
        prediction.
    hidden_from
        The number of rows from which on computing is predicted to hide the all-reduces.

    Returns
    -------
    Picture
        Points at the medians, with a line from the fastest to the slowest round, and predictions
        dashed, on logarithmic axes; left of ``hidden_from``, where the network decides, the ground
        is grey. The text holds no measured number.

    Raises
    ------
    UsageError
        If there are more than four names, times do not fit the rows, or one is not above zero.

    Examples
    --------
    >>> seconds = {"alone": [[2e-3], [8e-3]], "DDP": [[9e-3], [1e-2]]}
    >>> picture = labkit.figures.step_times([16, 64], seconds, {"DDP": [8e-3, 1e-2]})
    >>> print(picture.text.splitlines()[0])
    Time of a step against the rows per rank (16, 64), of alone and of DDP, with predictions.
    """
    if len(seconds) > len(SERIES):
        raise UsageError(f"there are {len(seconds)} series; a figure shows up to {len(SERIES)}")
    figure = new_figure(6.4, 3.4)
    axes = figure.subplots()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    dashed = False
    for place, (name, times) in enumerate(seconds.items()):
        if len(times) != len(rows) or not all(len(own) for own in times):
            raise UsageError(f"{name} needs at least one round for each of {len(rows)} rows")
        colour = SERIES[place]
        points = measured(rows, [float(np.median(own)) for own in times], "rows", name)
        axes.vlines(rows, [min(own) for own in times], [max(own) for own in times], color=colour,
                    linewidth=1, alpha=0.6)  # fmt: skip
        axes.plot(*points, MARKERS[place], color=colour, markersize=5, label=name)
        line = (predicted or {}).get(name)
        if line is not None:
            axes.plot(*measured(rows, line, "rows", name), "--", color=colour, linewidth=1.4)
            dashed = True
    low, high = min(rows) / 1.3, max(rows) * 1.3
    if hidden_from is not None:
        axes.axvspan(low, min(max(hidden_from, low), high), color=GRID, zorder=0, linewidth=0)
    axes.set_xlim(low, high)
    axes.set_xticks(sorted(rows), [f"{number:,g}" for number in sorted(rows)])
    axes.minorticks_off()
    _ticks_of_seconds(axes)
    style_axes(axes, title=title, xlabel="rows per rank", ylabel="time of a step (seconds)")
    style_legend(axes, loc="upper left")
    text = (
        f"{title + ': t' if title else 'T'}ime of a step against the rows per rank "
        f"({', '.join(f'{number:g}' for number in rows)}), of {' and of '.join(seconds)}"
        f"{', with predictions' if dashed else ''}."
    )
    note = how_to_read or "".join(
        [
            "Points: medians, with all rounds on the line.",
            " Dashed: predicted." * dashed,
            " Grey: predicted to be bound by the network." * (hidden_from is not None),
        ]
    )
    return Picture(figure, text, note)


def lost_time(
    intervals: Sequence[float],
    predicted: Mapping[str, Sequence[float]],
    simulated: Mapping[str, Sequence[float]] | None = None,
    *,
    title: str = "",
    how_to_read: str = "",
) -> Picture:
    """Draw the share of time that is lost against the interval between two saves.

    Parameters
    ----------
    intervals
        Seconds between two saves, at least two different numbers.
    predicted
        By name, up to four: for each interval, the share of time lost (0.02 are 2 %).
    simulated
        By the same names, what a simulation gave.

    Returns
    -------
    Picture
        A line per name with a bar over the intervals that cost at most a tenth more than the best
        one; simulated shares as points. The text holds no number that was not an interval.

    Raises
    ------
    UsageError
        If there are more than four names, or shares do not fit the intervals.

    Examples
    --------
    >>> predicted = {"1,024 GPUs": [0.05, 0.02, 0.06]}
    >>> picture = labkit.figures.lost_time([60, 600, 6000], predicted)
    >>> print(picture.text.splitlines()[0])
    Share of time lost against the interval between saves, 60 s to 6000 s, of 1,024 GPUs.
    """
    if len(predicted) > len(SERIES):
        raise UsageError(f"there are {len(predicted)} lines; a figure shows up to {len(SERIES)}")
    figure = new_figure(6.4, 3.4)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    for place, (name, shares) in enumerate(predicted.items()):
        x, y = measured(intervals, shares, "intervals", name)
        colour = SERIES[place]
        axes.plot(x, y, color=colour, linewidth=1.4, label=name)
        good = x[y <= y.min() * (1 + FLAT)]
        axes.hlines(y.min() / 1.12, good[0], good[-1], color=colour, linewidth=5, alpha=0.45)
        if simulated and name in simulated:
            points = measured(intervals, simulated[name], "intervals", name)
            axes.plot(*points, MARKERS[place], color=colour, markersize=4)
    ticks = {at: word for at, word in CLOCK.items() if min(intervals) <= at <= max(intervals)}
    axes.set_xticks([*ticks], [*ticks.values()])
    axes.minorticks_off()
    _plain_percent(axes)
    style_axes(axes, title=title, xlabel="time between two saves", ylabel="time lost")
    style_legend(axes, loc="lower left")
    ends = [f"{end:g} s" for end in (min(intervals), max(intervals))]
    text = (
        f"{title + ': s' if title else 'S'}hare of time lost against the interval between saves, "
        f"{ends[0]} to {ends[1]}, of {' and of '.join(predicted)}."
    )
    note = how_to_read or (
        f"Lines: predicted; points: simulated. A bar spans the intervals that cost at most "
        f"{FLAT:.0%} more than the best one."
    )
    return Picture(figure, text, note)


def _ticks_of_seconds(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    seconds_axis(axes.yaxis)


def _plain_percent(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
