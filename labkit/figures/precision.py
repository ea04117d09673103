"""Draw what fewer bits do to training: to its gradients, its loss, its time and its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from .picture import Picture
from .style import (
    INK,
    LABEL_SIZE,
    MARKERS,
    NOTE_SIZE,
    PARTS,
    SERIES,
    bytes_axis,
    new_figure,
    seconds_axis,
    style_axes,
    style_legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Powers of two at which fp16 changes: what is not above the first is rounded to 0, and below the
#: second numbers have fewer digits than 11 bits.
ZERO, NORMAL = -25, -14
ZONES = {"zero": ("#994455", 0.25), "subnormal": ("#EECC66", 0.4)}
#: Wide to narrow, so that curves that coincide are all seen.
WIDTHS = (5.0, 2.0, 2.0, 1.5)
DASHES: tuple[Any, ...] = ("-", "-", (0, (4, 2)), "-")
LIGHT_FIRST = ("#6699CC", "#004488", "#997700", "#994455")


def gradient_sizes(
    rows: Mapping[str, Mapping[str, Any]],
    *,
    title: str = "",
    how_to_read: str = "",
) -> Picture:
    """Draw how large gradients are, beside the limits of fp16.

    Parameters
    ----------
    rows
        By name, a row of the figure; of each, by the name of a part of the model, its gradients
        (tensors or arrays). Zeros are left out: a logarithmic axis has no place for them.

    Returns
    -------
    Picture
        A histogram of ``log2 |gradient|`` per row, all on one axis, and the zones in which fp16 has
        only zero, or fewer digits. The text holds no number.

    Raises
    ------
    UsageError
        If a row has no parts, or more than two.

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
    sizes = {
        name: {part: _log2(values) for part, values in parts.items()}
        for name, parts in rows.items()
    }
    everything = [value for parts in sizes.values() for own in parts.values() for value in own]
    low = min([*everything, ZERO - 5.0])
    high = max([*everything, NORMAL + 5.0])
    edges = np.arange(np.floor(low), np.ceil(high) + 1)
    for axes, (name, parts) in zip(panels, sizes.items(), strict=True):
        for (part, own), colour in zip(parts.items(), (PARTS[1], PARTS[0]), strict=False):
            axes.hist(own, edges.tolist(), color=colour, label=part)
        for (left, right), zone in zip(((edges[0], ZERO), (ZERO, NORMAL)), ZONES, strict=True):
            colour, alpha = ZONES[zone]
            axes.axvspan(left, right, color=colour, alpha=alpha, zorder=0, linewidth=0)
        axes.set_xlim(edges[0], edges[-1])
        style_axes(axes, title=name, ylabel="gradients", grid="")
    panels[-1].set_xlabel("log2 |gradient|", color=INK, fontsize=LABEL_SIZE)
    style_legend(panels[0], loc="upper right")
    _head(figure, title)
    parts = dict.fromkeys(part for own in rows.values() for part in own)
    text = (
        f"{title + ': g' if title else 'G'}radients by size, log2 |gradient|, of "
        f"{' and '.join(parts)}, one row for each of {', '.join(rows)}."
    )
    note = how_to_read or (
        "Red: fp16 rounds these to 0. Yellow: fp16 has fewer digits here. Zeros are not drawn."
    )
    return Picture(figure, text, note)


def scale_history(scales: Sequence[float], *, title: str = "", how_to_read: str = "") -> Picture:
    """Draw the scale of a ``GradScaler``, step by step.

    Parameters
    ----------
    scales
        The scale that each step was made with. Where the next one is lower, the step was skipped.

    Returns
    -------
    Picture
        A line over the steps and a cross at each that was skipped. The text holds no number.

    Examples
    --------
    >>> picture = labkit.figures.scale_history([8.0, 4.0, 4.0, 8.0, 4.0], title="The scale")
    >>> print(picture.text.splitlines()[0])
    The scale, against the step, with a cross at each step that was skipped.
    """
    values = np.asarray(scales, dtype=float)
    skipped = np.flatnonzero(values[1:] < values[:-1])
    figure = new_figure(7.5, 2.8)
    axes = figure.subplots()
    axes.set_yscale("log", base=2)
    axes.step(range(len(values)), values, where="post", color=SERIES[0], linewidth=1.4)
    axes.plot(skipped, values[skipped], "x", color=SERIES[1], label="skipped", zorder=3)
    style_legend(axes, loc="upper right")
    style_axes(axes, title=title, xlabel="step", ylabel="scale")
    text = f"{title or 'A scale'}, against the step, with a cross at each step that was skipped."
    return Picture(figure, text, how_to_read)


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

    Returns
    -------
    Picture
        Panels side by side, and a row of pictures for each name. The text holds no number.

    Raises
    ------
    UsageError
        If there are more than four runs.

    Examples
    --------
    >>> losses = {"drawing": {"fp32": [0.2, 0.1], "fp16": [0.2, 0.2]}}
    >>> picture = labkit.figures.losses_and_pictures(losses, {"fp32": [[0.0, 1.0, 1.0, 0.0]]})
    >>> print(picture.text)
    Loss against the step, drawing, for fp32, fp16. Below: pictures of fp32.
    """
    runs = list(dict.fromkeys(name for panel in losses.values() for name in panel))
    if len(runs) > len(SERIES):
        raise UsageError(f"there are {len(runs)} runs; a figure shows up to {len(SERIES)}")
    columns = max((len(row) for row in pictures.values()), default=1)
    figure = new_figure(7.5, 2.8 + 0.62 * len(pictures))
    heights = [2.8, 0.62 * len(pictures)]
    above, below = np.asarray(figure.subfigures(2, 1, height_ratios=heights)).ravel()
    panels = above.subplots(1, len(losses), squeeze=False)[0]
    for axes, (what, curves) in zip(panels, losses.items(), strict=True):
        for name, curve in curves.items():
            k = runs.index(name)
            axes.plot(curve, linestyle=DASHES[k], color=LIGHT_FIRST[k], lw=WIDTHS[k], label=name)
        axes.set_ylim(0, None)
        style_axes(axes, title=what, xlabel="step", ylabel="loss")
    style_legend(panels[-1], loc="upper right")
    grid = below.subplots(len(pictures), columns, squeeze=False)
    for cells, (name, row) in zip(grid, pictures.items(), strict=True):
        for axes in cells:
            axes.axis("off")
        for axes, picture in zip(cells, row, strict=False):
            axes.imshow(1 - _square(picture), cmap="gray", vmin=0, vmax=1)
        cells[0].text(-0.15, 0.5, name, transform=cells[0].transAxes, ha="right", va="center",
                      color=INK, fontsize=NOTE_SIZE)  # fmt: skip
    text = (
        f"Loss against the step, {' and '.join(losses)}, for {', '.join(runs)}. "
        f"Below: pictures of {', '.join(pictures)}."
    )
    return Picture(figure, text, how_to_read)


def time_and_memory(
    seconds: Mapping[str, Mapping[int, Sequence[float]]],
    kept: Mapping[str, Mapping[int, float]],
    *,
    title: str = "",
    how_to_read: str = "",
) -> Picture:
    """Draw the time of a step against a model's width, and what it keeps against the batch.

    Parameters
    ----------
    seconds
        By precision, for each width, the seconds of every round.
    kept
        By precision, for each number of images, the bytes that autograd keeps for backward.

    Returns
    -------
    Picture
        Left, medians with a line from the fastest to the slowest round; right, bytes. All axes are
        logarithmic. The text holds no number.

    Raises
    ------
    UsageError
        If there are more than four precisions, or a width without a round.

    Examples
    --------
    >>> seconds = {"fp32": {32: [2e-4, 3e-4], 512: [4e-3, 5e-3]}, "bf16": {32: [3e-4, 4e-4]}}
    >>> kept = {"fp32": {64: 1024, 512: 8192}, "bf16": {64: 1536, 512: 5120}}
    >>> picture = labkit.figures.time_and_memory(seconds, kept, title="2 ranks on 2 cores")
    >>> print(picture.text.splitlines()[0])
    2 ranks on 2 cores. Left: time of a step against the width, for fp32, bf16. Right: bytes kept \
for backward against the images per rank, for fp32, bf16.
    """
    names = list(dict.fromkeys([*seconds, *kept]))
    if len(names) > len(SERIES):
        raise UsageError(f"there are {len(names)} precisions; a figure shows up to {len(SERIES)}")
    if empty := [name for name, own in seconds.items() if not all(map(len, own.values()))]:
        raise UsageError(f"{empty[0]} has a width without a round")
    figure = new_figure(7.5, 3.2)
    left, right = figure.subplots(1, 2)
    figure.set_layout_engine("constrained", wspace=0.08)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
    left.set_yscale("log")
    right.set_yscale("log", base=2)
    for name in names:
        k = names.index(name)
        look: dict[str, Any] = {"color": SERIES[k], "marker": MARKERS[k], "markersize": 5}
        rounds = {width: sorted(own) for width, own in sorted(seconds.get(name, {}).items())}
        if rounds:
            middles = [float(np.median(own)) for own in rounds.values()]
            left.plot([*rounds], middles, label=name, linewidth=1.2, **look)
            ends = ([own[place] for own in rounds.values()] for place in (0, -1))
            left.vlines([*rounds], *ends, color=SERIES[k], linewidth=1, alpha=0.7)
        own = dict(sorted(kept.get(name, {}).items()))
        if own:
            right.plot([*own], [*own.values()], label=name, linewidth=1.2, **look)
    _numbers(left, sorted({width for own in seconds.values() for width in own}))
    _numbers(right, sorted({images for own in kept.values() for images in own}))
    seconds_axis(left.yaxis)
    bytes_axis(right.yaxis)
    style_axes(left, title="Time of a step", xlabel="width", ylabel="time (seconds)")
    style_axes(right, title="Kept for backward", xlabel="images per rank", ylabel="bytes")
    style_legend(left, loc="upper left")
    _head(figure, title)
    text = (
        f"{title + '. ' if title else ''}Left: time of a step against the width, for "
        f"{', '.join(seconds)}. Right: bytes kept for backward against the images per rank, for "
        f"{', '.join(kept)}."
    )
    note = how_to_read or "Left, a point is a median; its line ends at the fastest and slowest."
    return Picture(figure, text, note)


def _log2(values: Any) -> np.ndarray:
    """Return log2 |value| of those that are neither zero nor infinite nor nan."""
    array = np.abs(np.asarray(values, dtype=float).ravel())
    return np.log2(array[np.isfinite(array) & (array > 0)])


def _square(picture: Any) -> np.ndarray:
    flat = np.asarray(picture, dtype=float).ravel()
    side = round(np.sqrt(flat.size))
    return flat.reshape(side, side)


def _numbers(axes: Axes, ticks: Sequence[int]) -> None:
    """Write the numbers that were measured, and no others, on the lower axis."""
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()


def _head(figure: Any, title: str) -> None:
    if title:
        figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=LABEL_SIZE, weight="bold")
