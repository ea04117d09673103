"""Draw what was timed round by round, with its spread: against a contender, or a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..errors import UsageError
from .curves import bytes_ticks
from .picture import Picture
from .style import (
    INK,
    MARKERS,
    SERIES,
    format_bytes,
    new_figure,
    seconds_axis,
    style_axes,
    style_legend,
)

#: For each size, the seconds of each round.
Rounds = Sequence[Sequence[float]]
#: Ratios beyond this factor, or below its inverse, are drawn there: one stray turn would press all
#: others into a line.
FURTHEST = 8.0
#: A range of times with fewer than two powers of ten gets ticks between them.
FEW_TICKS = 100.0
#: How far the series of one size stand apart, in powers of two.
APART = 0.35
#: What sizes are, as a rule.
BYTES = "tensor (bytes)"


def paired_ratios(
    sizes: Sequence[float],
    seconds: Mapping[str, Rounds],
    *,
    against: str,
    title: str = "",
    xlabel: str = "",
    how_to_read: str = "",
) -> Picture:
    """Draw how many times as fast as one contender the others were, in each round of a race.

    Both times of a ratio are of the same round, so that a busy moment of the machine hits both.

    Parameters
    ----------
    sizes
        Bytes of the tensor; or of what ``xlabel`` says.
    seconds
        By contender, for each size, the seconds of each round.
    against
        The contender that the others are compared with.
    xlabel
        What the sizes are, if not bytes.

    Returns
    -------
    Picture
        A dot for each round and a bar at the median, against the size; above 1 is faster than
        ``against``, and no dot is beyond a factor of 8. The text holds no measured number.

    Raises
    ------
    UsageError
        If a contender has other sizes or rounds than the others, or ``against`` is none of them.

    Examples
    --------
    >>> seconds = {"mine": [[2e-4, 3e-4], [1e-2, 3e-2]], "theirs": [[1e-4, 3e-4], [2e-2, 3e-2]]}
    >>> picture = labkit.figures.paired_ratios([1024, 2**20], seconds, against="theirs")
    >>> print(picture.text.splitlines()[0])
    Time of theirs divided by that of mine, round by round, for 2 sizes from 1 KiB to 1 MiB.
    """
    times = _rounds(sizes, seconds)
    if against not in times:
        raise UsageError(f"against is {against!r}: give one of {', '.join(times)}")
    base = times.pop(against)
    if odd := [name for name, own in times.items() if own.shape != base.shape]:
        raise UsageError(f"{odd[0]} has other rounds than {against}: a ratio needs pairs")
    figure = new_figure(6.4, 3.2)
    axes = figure.subplots()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    handles = []
    for k, (name, own) in enumerate(times.items()):
        colour, marker = SERIES[k], MARKERS[k]
        x = np.asarray(sizes, dtype=float) * 2 ** ((k - (len(times) - 1) / 2) * 2 * APART)
        ratios = base / own
        dots = ratios.clip(1 / FURTHEST, FURTHEST)
        axes.plot(x, dots, marker, color=colour, markersize=3.5, alpha=0.55, markeredgewidth=0)
        middle = np.median(ratios, axis=1)
        axes.hlines(middle, x * 2**-APART, x * 2**APART, color=colour, linewidth=2.4)
        handles += axes.plot([], [], marker, color=colour, label=name)
    axes.axhline(1, color=INK, linewidth=1)
    xlabel = xlabel or BYTES
    style_axes(axes, title=title, xlabel=xlabel, ylabel=f"times as fast as {against}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if xlabel == BYTES:
        bytes_ticks(axes)
    else:
        axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
        axes.minorticks_off()
    if handles:
        style_legend(axes, handles=handles, loc="best")
    others = " and that of ".join(times) or "nobody"
    text = (
        f"{title + ': t' if title else 'T'}ime of {against} divided by that of {others}, round "
        f"by round, {_range(sizes, xlabel)}."
    )
    note = how_to_read or (
        "A dot is one round, a bar the median of all; above 1 is faster. Dots at "
        f"{FURTHEST:g} or 1/{FURTHEST:g} may lie beyond."
    )
    return Picture(figure, text, note)


def against_prediction(
    sizes: Sequence[float],
    seconds: Mapping[str, Rounds],
    predicted: Mapping[str, Sequence[float] | None],
    *,
    title: str = "",
    xlabel: str = BYTES,
    ylabel: str = "time per call (seconds)",
    how_to_read: str = "",
) -> Picture:
    """Draw measured times against size, with what was predicted for them.

    Parameters
    ----------
    sizes
        Bytes of the tensor, or of what ``xlabel`` names.
    seconds
        By name, for each size, the seconds of each round.
    predicted
        By name, the predicted seconds for each size; None where there is no prediction.
    xlabel, ylabel
        What has these bytes, and what takes this time, with their units.

    Returns
    -------
    Picture
        Points at the medians, with a line from the fastest to the slowest round, and predictions
        dashed; both axes logarithmic. The text holds no measured number.

    Raises
    ------
    UsageError
        If times or predictions do not fit the sizes.

    Examples
    --------
    >>> seconds = {"ring": [[6e-4, 7e-4], [2e-3, 3e-3]]}
    >>> predicted = {"ring": [6e-4, 2e-3]}
    >>> picture = labkit.figures.against_prediction([1024, 2**20], seconds, predicted)
    >>> print(picture.text.splitlines()[0])
    Time of ring, measured and predicted, for 2 sizes from 1 KiB to 1 MiB.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    times = _rounds(sizes, seconds)
    x = np.asarray(sizes, dtype=float)
    figure = new_figure(6.4, 3.4)
    axes = figure.subplots()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    names = list(dict.fromkeys([*times, *predicted]))
    if len(names) > len(SERIES):
        raise UsageError(f"there are {len(names)} series; a figure shows up to {len(SERIES)}")
    for name, colour, marker in zip(names, SERIES, MARKERS, strict=False):
        line = predicted.get(name)
        if line is not None:
            if len(line) != len(x):
                raise UsageError(f"predicted[{name!r}] has {len(line)} times for {len(x)} sizes")
            axes.plot(x, line, "--", color=colour, linewidth=1.4)
        if name in times:
            own = times[name]
            axes.vlines(x, own.min(axis=1), own.max(axis=1), color=colour, linewidth=1, alpha=0.6)
            axes.plot(x, np.median(own, axis=1), marker, color=colour, markersize=5, label=name)
    style_axes(axes, title=title, xlabel=xlabel, ylabel=ylabel)
    low, high = axes.get_ylim()
    if high < FEW_TICKS * low:  # a power of ten alone would say little
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    seconds_axis(axes.yaxis)
    bytes_ticks(axes)
    if times:
        style_legend(axes, loc="best")
    text = (
        f"{title + ': t' if title else 'T'}ime of {' and of '.join(names)}, measured and "
        f"predicted, {_range(sizes)}."
    )
    note = how_to_read or "Points: medians, with all rounds on the line. Dashed: predicted."
    return Picture(figure, text, note)


def _rounds(sizes: Sequence[float], seconds: Mapping[str, Rounds]) -> dict[str, np.ndarray]:
    """Return the times by name as arrays of sizes × rounds, or say what is wrong with them."""
    if len(seconds) > len(SERIES):
        raise UsageError(f"there are {len(seconds)} series; a figure shows up to {len(SERIES)}")
    found = {}
    for name, rows in seconds.items():
        if len(rows) != len(sizes) or len({len(row) for row in rows}) != 1:
            raise UsageError(f"seconds[{name!r}] needs the same number of rounds for each size")
        array = np.asarray(rows, dtype=float)
        if not array.size or not (np.isfinite(array).all() and (array > 0).all()):
            raise UsageError(f"seconds[{name!r}] has values that are not above zero")
        found[name] = array
    return found


def _range(sizes: Sequence[float], xlabel: str = BYTES) -> str:
    if xlabel != BYTES:
        return f"against {xlabel}: {', '.join(f'{size:g}' for size in sizes)}"
    return f"for {len(sizes)} sizes from {format_bytes(min(sizes))} to {format_bytes(max(sizes))}"
