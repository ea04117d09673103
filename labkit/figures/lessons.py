"""Draw what one lesson of the course is about: a function for each of its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.errors import UsageError
from ..base.rank_names import rank_colour
from .chart import chart, check_count, check_length, measured, series, titled
from .picture import Picture
from .style import (
    INK,
    LABEL_SIZE,
    NOTE_SIZE,
    PARTS,
    SERIES,
    new_figure,
    style_axes,
    style_legend,
)

#: Powers of two at which fp16 changes: what is not above the first is rounded to 0, and below the
#: second numbers have fewer digits than 11 bits.
ZERO, NORMAL = -25, -14
#: Wide to narrow, so that curves of a loss that coincide are all seen.
LOSSES: tuple[dict[str, Any], ...] = (
    {"color": "#6699CC", "lw": 5.0},
    {"color": "#004488", "lw": 2.0},
    {"color": "#997700", "lw": 2.0, "linestyle": (0, (4, 2))},
    {"color": "#994455", "lw": 1.5},
)
#: Curves that lie on each other are told apart by their dashes.
GAPS = dict(
    zip((*SERIES, "#222222", "#EE99AA"), ("-", "--", ":", "-.", (0, (1, 1)), (0, (5, 1))),
        strict=True)
)  # fmt: skip
#: What may be there after a writer was killed, with mark and colour.
LEFT = {"old": ("s", "#6699CC"), "nothing": ("X", "#994455"), "new": ("o", "#004488")}
#: What an interval may cost more than the best one and still lie in the band, of the best's cost.
FLAT = 0.1
#: Ticks of an axis of intervals: seconds to days, as people say them.
CLOCK = {1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 36000: "10 h"}


def gradient_sizes(rows: Mapping[str, Mapping[str, Any]]) -> Picture:
    """Draw how large gradients are, as histograms of ``log2 |gradient|``, with the zones in which
    fp16 has only zero, or fewer digits.

    Parameters
    ----------
    rows
        By name, a row of the figure; of each, by the name of a part of the model, one or two, its
        gradients (tensors or arrays). Zeros are left out: a logarithmic axis has no place for them.

    Examples
    --------
    >>> rows = {"fp32": {"decoder": [1e-9, 1e-8]}, "fp16": {"decoder": [0.0, 0.0]}}
    >>> picture = labkit.figures.gradient_sizes(rows)
    >>> print(picture.text.splitlines()[0])
    Gradients by size, log2 |gradient|, of decoder, one row for each of fp32, fp16.
    """
    for name, parts in rows.items():
        if not 1 <= len(parts) <= 2:
            raise UsageError(f"row {name!r} has {len(parts)} parts; a row shows one or two")
    figure = new_figure(7.5, 0.6 + 1.2 * len(rows))
    panels = figure.subplots(len(rows), sharex=True, sharey=True, squeeze=False)[:, 0]
    sizes = [{part: _log2(values) for part, values in parts.items()} for parts in rows.values()]
    everything = [value for parts in sizes for own in parts.values() for value in own]
    low, high = min([*everything, ZERO - 5.0]), max([*everything, NORMAL + 5.0])
    edges = np.arange(np.floor(low), np.ceil(high) + 1)
    for axes, name, parts in zip(panels, rows, sizes, strict=True):
        for (part, own), colour in zip(parts.items(), (PARTS[1], PARTS[0]), strict=False):
            axes.hist(own, edges.tolist(), color=colour, label=part)
        axes.axvspan(edges[0], ZERO, color="#994455", alpha=0.25, zorder=0, linewidth=0)
        axes.axvspan(ZERO, NORMAL, color="#EECC66", alpha=0.4, zorder=0, linewidth=0)
        axes.set_xlim(edges[0], edges[-1])
        style_axes(axes, title=name, ylabel="gradients", grid="")
    panels[-1].set_xlabel("log2 |gradient|", color=INK, fontsize=LABEL_SIZE)
    style_legend(panels[0], loc="upper right")
    names = dict.fromkeys(part for own in rows.values() for part in own)
    text = (
        f"Gradients by size, log2 |gradient|, of {' and '.join(names)}, one row for each of "
        f"{', '.join(rows)}."
    )
    note = "Red: fp16 rounds these to 0. Yellow: fp16 has fewer digits here. Zeros are not drawn."
    return Picture(figure, text, note)


def _log2(values: Any) -> np.ndarray:
    """Return log2 |value| of those that are neither zero nor infinite nor nan."""
    array = np.abs(np.asarray(values, dtype=float).ravel())
    return np.log2(array[np.isfinite(array) & (array > 0)])


def scale_history(scales: Sequence[float], *, title: str = "") -> Picture:
    """Draw the scale of a ``GradScaler``, step by step, with a cross at each step that was skipped.

    Parameters
    ----------
    scales
        The scale that each step was made with. Where the next one is lower, the step was skipped.

    Examples
    --------
    >>> picture = labkit.figures.scale_history([8.0, 4.0, 4.0, 8.0, 4.0], title="The scale")
    >>> print(picture.text.splitlines()[0])
    The scale, against the step, with a cross at each step that was skipped.
    """
    values = np.asarray(scales, dtype=float)
    skipped = np.flatnonzero(values[1:] < values[:-1])
    figure, axes = chart(7.5, 2.8, y=2)
    axes.step(range(len(values)), values, where="post", color=SERIES[0], linewidth=1.4)
    axes.plot(skipped, values[skipped], "x", color=SERIES[1], label="skipped", zorder=3)
    style_legend(axes, loc="upper right")
    style_axes(axes, title=title, xlabel="step", ylabel="scale")
    text = f"{title or 'A scale'}, against the step, with a cross at each step that was skipped."
    return Picture(figure, text)


def losses_and_pictures(
    losses: Mapping[str, Mapping[str, Sequence[float]]],
    pictures: Mapping[str, Sequence[Any]],
    *,
    how_to_read: str = "",
) -> Picture:
    """Draw the losses of several runs, and below them what each run's network draws.

    Parameters
    ----------
    losses
        By the name of a loss, a panel: by the name of a run, up to four, its curve over the steps.
    pictures
        By name, rows of square pictures, flat or not, with values from 0 to 1.

    Examples
    --------
    >>> losses = {"drawing": {"fp32": [0.2, 0.1], "fp16": [0.2, 0.2]}}
    >>> picture = labkit.figures.losses_and_pictures(losses, {"fp32": [[0.0, 1.0, 1.0, 0.0]]})
    >>> print(picture.text)
    Loss against the step, drawing, for fp32, fp16. Below: pictures of fp32.
    """
    runs = dict.fromkeys(name for panel in losses.values() for name in panel)
    check_count(runs, "runs")
    looks = dict(zip(runs, LOSSES, strict=False))
    columns = max((len(row) for row in pictures.values()), default=1)
    heights = [2.8, 0.62 * len(pictures)]
    figure = new_figure(7.5, sum(heights))
    above, below = np.asarray(figure.subfigures(2, 1, height_ratios=heights)).ravel()
    panels = above.subplots(1, len(losses), squeeze=False)[0]
    for axes, (what, curves) in zip(panels, losses.items(), strict=True):
        for name, curve in curves.items():
            axes.plot(curve, label=name, **looks[name])
        axes.set_ylim(0, None)
        style_axes(axes, title=what, xlabel="step", ylabel="loss")
    style_legend(panels[-1], loc="upper right")
    grid = below.subplots(len(pictures), columns, squeeze=False)
    for cells, (name, row) in zip(grid, pictures.items(), strict=True):
        for axes in cells:
            axes.axis("off")
        for axes, picture in zip(cells, row, strict=False):
            flat = np.asarray(picture, dtype=float).ravel()
            side = round(np.sqrt(flat.size))
            axes.imshow(1 - flat.reshape(side, side), cmap="gray", vmin=0, vmax=1)
        cells[0].text(-0.15, 0.5, name, transform=cells[0].transAxes, ha="right", va="center",
                      color=INK, fontsize=NOTE_SIZE)  # fmt: skip
    text = (
        f"Loss against the step, {' and '.join(losses)}, for {', '.join(runs)}. "
        f"Below: pictures of {', '.join(pictures)}."
    )
    return Picture(figure, text, how_to_read)


def written_by(weight: Any, *, title: str = "", how_to_read: str = "") -> Picture:
    """Draw a loaded weight, coloured by the rank that wrote each of its numbers.

    Parameters
    ----------
    weight
        A matrix, (rows, columns), each number of which is a rank.

    Examples
    --------
    >>> picture = labkit.figures.written_by([[1, 1], [0, 0]], title="One weight")
    >>> print(picture.text.splitlines()[0])
    One weight of 2 × 2 numbers, coloured by the rank that wrote them.
    """
    ranks = np.asarray(weight, dtype=int)
    if ranks.ndim != 2:
        raise UsageError(f"a weight has rows and columns; this one has the shape {ranks.shape}")
    most = int(ranks.max(initial=0)) + 1
    figure, axes = chart(5, 3)
    from matplotlib.colors import ListedColormap

    colours = ListedColormap([rank_colour(rank) for rank in range(most)])
    axes.imshow(ranks, cmap=colours, vmin=0, vmax=most, interpolation="nearest")
    for rank in sorted(set(ranks.ravel().tolist())):
        axes.plot([], [], "s", color=rank_colour(rank), label=f"rank {rank}")
    style_legend(axes, loc="center left", bbox_to_anchor=(1.02, 0.5))
    style_axes(axes, title=title, xlabel="column", ylabel="row", grid="")
    rows, columns = ranks.shape
    text = f"{title or 'A weight'} of {rows} × {columns} numbers, coloured by the rank that wrote"
    return Picture(figure, f"{text} them.", how_to_read)


def resumed_without(gaps: Mapping[str, Sequence[float]], *, title: str = "") -> Picture:
    """Draw how far runs are from the one that nothing interrupted, by the part that each lacks.

    Parameters
    ----------
    gaps
        By the part that was left out of the checkpoint, up to six, the largest difference between
        the weights of the two runs after each step.

    Examples
    --------
    >>> picture = labkit.figures.resumed_without({"rng": [0.1, 0.2], "epoch": [0.0, 0.3]})
    >>> print(picture.text.splitlines()[0])
    Distance of resumed runs from the uninterrupted run, by step, without rng, without epoch.
    """
    check_count(gaps, "parts", len(GAPS))
    figure, axes = chart(7.5, 3.4)
    from matplotlib.ticker import MaxNLocator

    for (part, gap), (colour, line) in zip(gaps.items(), GAPS.items(), strict=False):
        steps = range(1, len(gap) + 1)
        axes.plot(steps, gap, linestyle=line, color=colour, linewidth=1.6, label=part)
    axes.axhline(0, color=INK, linewidth=2)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style_legend(axes, title="left out", loc="upper left", bbox_to_anchor=(1.02, 1))
    style_axes(axes, title=title, xlabel="steps since the checkpoint", ylabel="largest difference")
    text = "Distance of resumed runs from the uninterrupted run, by step, "
    text += ", ".join(f"without {part}" for part in gaps) + "."
    return Picture(figure, text, "The line at 0: a run resumed with the whole checkpoint.")


def killed_writers(
    percent: Sequence[float], left: Mapping[str, Sequence[str]], *, title: str = ""
) -> Picture:
    """Draw which checkpoint is there after its writer was killed, by when it was killed.

    Parameters
    ----------
    percent
        How much of the file was written when each writer was killed.
    left
        By the way of writing, what could be loaded afterwards: "old", "new" or "nothing".

    Examples
    --------
    >>> left = {"rename": ["old", "new"], "overwriting": ["nothing", "new"]}
    >>> picture = labkit.figures.killed_writers([50, 100], left)
    >>> print(picture.text.splitlines()[0])
    Left by 2 writers. By rename: old 1, new 1; by overwriting: nothing 1, new 1.
    """
    for name, found in left.items():
        check_length(repr(name), found, "writers", percent)
    figure, axes = chart(7.5, 1.1 + 0.42 * len(left))
    for kind, (mark, colour) in LEFT.items():
        points = [
            (x, row)
            for row, found in enumerate(left.values())
            for x, what in zip(percent, found, strict=True)
            if what == kind
        ]
        if points:
            axes.plot(*zip(*points, strict=True), mark, color=colour, markersize=6, label=kind)
    axes.set_yticks(range(len(left)), list(left))
    axes.set_ylim(len(left) - 0.5, -0.5)
    style_legend(axes, title="afterwards", loc="center left", bbox_to_anchor=(1.02, 0.5))
    style_axes(axes, title=title, xlabel="killed at % of the file", grid="")
    counts = [
        f"{name}: "
        + ", ".join(f"{kind} {list(found).count(kind)}" for kind in LEFT if kind in found)
        for name, found in left.items()
    ]
    return Picture(figure, f"Left by {len(percent)} writers. By {'; by '.join(counts)}.")


def lost_time(
    intervals: Sequence[float],
    predicted: Mapping[str, Sequence[float]],
    simulated: Mapping[str, Sequence[float]],
    *,
    title: str = "",
) -> Picture:
    """Draw the share of time that is lost against the interval between two saves.

    Parameters
    ----------
    intervals
        Seconds between two saves, at least two different numbers.
    predicted
        By name, up to four: for each interval, the share of time lost (0.02 are 2 %).
    simulated
        By the same names, what a simulation gave; a name may be missing.

    Examples
    --------
    >>> predicted = {"1,024 GPUs": [0.05, 0.02, 0.06]}
    >>> picture = labkit.figures.lost_time([60, 600, 6000], predicted, {})
    >>> print(picture.text.splitlines()[0])
    Share of time lost against the interval between saves, 60 s to 6000 s, of 1,024 GPUs.
    """
    figure, axes = chart(6.4, 3.4, x=10, y=10)
    from matplotlib.ticker import LogLocator, NullFormatter

    for name, shares, colour, marker in series(predicted, "lines"):
        x, y = measured(intervals, shares, "intervals", name)
        axes.plot(x, y, color=colour, linewidth=1.4, label=name)
        good = x[y <= y.min() * (1 + FLAT)]
        axes.hlines(y.min() / 1.12, good[0], good[-1], color=colour, linewidth=5, alpha=0.45)
        if name in simulated:
            points = measured(intervals, simulated[name], "intervals", name)
            axes.plot(*points, marker, color=colour, markersize=4)
    ticks = {at: word for at, word in CLOCK.items() if min(intervals) <= at <= max(intervals)}
    axes.set_xticks([*ticks], [*ticks.values()])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    style_axes(axes, title=title, xlabel="time between two saves", ylabel="time lost")
    style_legend(axes, loc="lower left")
    text = (
        f"Share of time lost against the interval between saves, {min(intervals):g} s to "
        f"{max(intervals):g} s, of {' and of '.join(predicted)}."
    )
    note = (
        "Lines: predicted; points: simulated. A bar spans the intervals that cost at most "
        f"{FLAT:.0%} more than the best one."
    )
    return Picture(figure, titled(title, text), note)
