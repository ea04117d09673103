"""Draw what was timed round by round, with its spread: against a contender, or a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..base.errors import UsageError
from .chart import (
    Rounds,
    byte_range,
    bytes_ticks,
    chart,
    check_count,
    draw_predicted,
    draw_rounds,
    head,
    log_ticks,
    number_ticks,
    plain_ticks,
    seconds_ticks,
    series,
    titled,
)
from .picture import Picture
from .style import CARD, GRID, INK, LABEL_SIZE, NOTE_SIZE, bytes_axis, style_axes, style_legend

#: Ratios beyond this factor, or below its inverse, are drawn there: one stray turn would press all
#: others into a line.
FURTHEST = 8.0
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
    xlabel: str = BYTES,
) -> Picture:
    """Draw how many times as fast as one contender the others were, in each round of a race.

    Both times of a ratio are of the same round, so that a busy moment of the machine hits both. A
    dot is a round, a bar the median; above 1 is faster than ``against``, and no dot is beyond a
    factor of 8. The text holds no measured number.

    Parameters
    ----------
    sizes
        Bytes of the tensor; or of what ``xlabel`` says.
    seconds
        By contender, for each size, the seconds of each round.
    against
        The contender that the others are compared with.

    Examples
    --------
    >>> seconds = {"mine": [[2e-4, 3e-4], [1e-2, 3e-2]], "theirs": [[1e-4, 3e-4], [2e-2, 3e-2]]}
    >>> picture = labkit.figures.paired_ratios([1024, 2**20], seconds, against="theirs")
    >>> print(picture.text.splitlines()[0])
    Time of theirs divided by that of mine, round by round, for 2 sizes from 1 KiB to 1 MiB.
    """
    check_count(seconds, "series")
    if against not in seconds:
        raise UsageError(f"against is {against!r}: give one of {', '.join(seconds)}")
    times = {name: _rounds(name, rows, sizes) for name, rows in seconds.items()}
    base = times.pop(against)
    if odd := [name for name, own in times.items() if own.shape != base.shape]:
        raise UsageError(f"{odd[0]} has other rounds than {against}: a ratio needs pairs")
    figure, axes = chart(6.4, 3.2, x=2, y=2)
    handles = []
    for k, (name, own, colour, marker) in enumerate(series(times)):
        x = np.asarray(sizes, dtype=float) * 2 ** ((k - (len(times) - 1) / 2) * 2 * APART)
        ratios = base / own
        dots = ratios.clip(1 / FURTHEST, FURTHEST)
        axes.plot(x, dots, marker, color=colour, markersize=3.5, alpha=0.55, markeredgewidth=0)
        middle = np.median(ratios, axis=1)
        axes.hlines(middle, x * 2**-APART, x * 2**APART, color=colour, linewidth=2.4)
        handles += axes.plot([], [], marker, color=colour, label=name)
    axes.axhline(1, color=INK, linewidth=1)
    style_axes(axes, title=title, xlabel=xlabel, ylabel=f"times as fast as {against}")
    low, high = axes.get_ylim()
    if high < 4 * low:  # one power of two may be all that it holds
        log_ticks(axes)
    plain_ticks(axes)
    if xlabel == BYTES:
        bytes_ticks(axes)
        over = f"for {len(sizes)} sizes from {byte_range(sizes)}"
    else:
        number_ticks(axes, sizes)
        over = f"against {xlabel}: {', '.join(f'{size:g}' for size in sizes)}"
    if handles:
        style_legend(axes, handles=handles, loc="best")
    others = " and that of ".join(times) or "nobody"
    text = f"Time of {against} divided by that of {others}, round by round, {over}."
    return Picture(
        figure,
        titled(title, text),
        "A dot is one round, a bar the median of all; above 1 is faster. Dots at "
        f"{FURTHEST:g} or 1/{FURTHEST:g} may lie beyond.",
    )


def _rounds(name: str, rows: Rounds, sizes: Sequence[float]) -> np.ndarray:
    """Return times as an array of sizes × rounds, or say what is wrong with them."""
    if len(rows) != len(sizes) or len({len(row) for row in rows}) != 1:
        raise UsageError(f"seconds[{name!r}] needs the same number of rounds for each size")
    array = np.asarray(rows, dtype=float)
    if not array.size or not (np.isfinite(array).all() and (array > 0).all()):
        raise UsageError(f"seconds[{name!r}] has values that are not above zero")
    return array


def against_prediction(
    sizes: Sequence[float],
    seconds: Mapping[str, Rounds],
    predicted: Mapping[str, Sequence[float] | None],
    *,
    title: str = "",
    xlabel: str = BYTES,
    ylabel: str = "time per call (seconds)",
    milliseconds: bool = False,
    bounds: Mapping[str, float] | None = None,
    crossing: tuple[str, float] | None = None,
    how_to_read: str = "Points: medians, with all rounds on the line. Dashed: predicted.",
) -> Picture:
    """Draw measured times against size, or against a number, with what was predicted for them.

    Points stand at the medians, with a line from the fastest to the slowest round; both axes are
    logarithmic, unless milliseconds are asked for. The text holds no measured number.

    Parameters
    ----------
    sizes
        Bytes of the tensor, or what ``xlabel`` names: bytes if it ends with "(bytes)", numbers if
        not.
    seconds
        By name, for each size, the seconds of each round.
    predicted
        By name, the predicted seconds for each size; None where there is no prediction.
    xlabel, ylabel
        What has these sizes, and what takes this time, with their units.
    milliseconds
        Whether the times are drawn in milliseconds from 0 on, in equal steps.
    bounds
        By name, the seconds of what no other time gets below: a line across, with its name.
    crossing
        The name and the size of a place where two predictions cross: a dotted line up, with its
        name.

    Examples
    --------
    >>> seconds = {"ring": [[6e-4, 7e-4], [2e-3, 3e-3]]}
    >>> predicted = {"ring": [6e-4, 2e-3]}
    >>> picture = labkit.figures.against_prediction([1024, 2**20], seconds, predicted)
    >>> print(picture.text.splitlines()[0])
    Time of ring, measured and predicted, for 2 sizes from 1 KiB to 1 MiB.
    """
    figure, axes = chart(6.4, 3.4, x=2, y=0 if milliseconds else 10)
    names = dict.fromkeys([*seconds, *predicted])
    factor = 1e3 if milliseconds else 1.0
    for name, _, colour, marker in series(names):
        line = predicted.get(name)
        scaled = None if line is None else [factor * each for each in line]
        draw_predicted(axes, sizes, scaled, name, colour)
        if name in seconds:
            rounds = [[factor * each for each in own] for own in seconds[name]]
            draw_rounds(axes, sizes, rounds, name, colour, marker=marker, linestyle="")
    for name, bound in (bounds or {}).items():
        axes.axhline(factor * bound, color=INK, linewidth=1)
        axes.annotate(name, (0.01, factor * bound), xytext=(0, -4), va="top", color=INK,
                      xycoords=("axes fraction", "data"), textcoords="offset points",
                      bbox={"facecolor": CARD, "edgecolor": "none", "pad": 1},
                      fontsize=LABEL_SIZE)  # fmt: skip
    if crossing is not None:
        name, size = crossing
        axes.axvline(size, color=INK, linewidth=1.2, linestyle=":")
        axes.annotate(name, (size, 0.02), xytext=(-4, 0), ha="right", color=INK,
                      xycoords=("data", "axes fraction"), textcoords="offset points",
                      bbox={"facecolor": CARD, "edgecolor": "none", "pad": 1},
                      fontsize=NOTE_SIZE)  # fmt: skip
    style_axes(axes, title=title, xlabel=xlabel, ylabel=ylabel)
    if milliseconds:
        axes.set_ylim(bottom=0)
    else:
        seconds_ticks(axes)
    if xlabel.endswith("(bytes)"):
        bytes_ticks(axes, sizes)
        over = f"for {len(sizes)} sizes from {byte_range(sizes)}"
    else:
        number_ticks(axes, sizes)
        over = f"against {xlabel}: {', '.join(f'{size:g}' for size in sizes)}"
    if seconds:
        style_legend(axes, loc="best")
    text = f"Time of {' and of '.join([*names, *(bounds or ())])}, measured and predicted, {over}."
    return Picture(figure, titled(title, text), how_to_read)


def step_times(
    rows: Sequence[float],
    seconds: Mapping[str, Rounds],
    predicted: Mapping[str, Sequence[float] | None],
    *,
    hidden_from: float | None = None,
    title: str = "",
) -> Picture:
    """Draw the time of a training step against the rows per rank, with what was predicted for it.

    Points stand at the medians, with a line from the fastest to the slowest round; axes are
    logarithmic. The text holds no measured number.

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
        The number of rows from which on computing is predicted to hide the all-reduces; left of
        it, where the network decides, the ground is grey.

    Examples
    --------
    >>> seconds = {"alone": [[2e-3], [8e-3]], "DDP": [[9e-3], [1e-2]]}
    >>> picture = labkit.figures.step_times([16, 64], seconds, {"DDP": [8e-3, 1e-2]})
    >>> print(picture.text.splitlines()[0])
    Time of a step against the rows per rank (16, 64), of alone and of DDP, with predictions.
    """
    figure, axes = chart(6.4, 3.4, x=2, y=10)
    for name, times, colour, marker in series(seconds):
        draw_rounds(axes, rows, times, name, colour, marker=marker, linestyle="")
        draw_predicted(axes, rows, predicted.get(name), name, colour)
    low, high = min(rows) / 1.3, max(rows) * 1.3
    if hidden_from is not None:
        axes.axvspan(low, min(max(hidden_from, low), high), color=GRID, zorder=0, linewidth=0)
    axes.set_xlim(low, high)
    number_ticks(axes, sorted(rows))
    seconds_ticks(axes)
    style_axes(axes, title=title, xlabel="rows per rank", ylabel="time of a step (seconds)")
    style_legend(axes, loc="upper left")
    dashed = any(line is not None for line in predicted.values())
    text = (
        f"Time of a step against the rows per rank ({', '.join(f'{number:g}' for number in rows)}),"
        f" of {' and of '.join(seconds)}{', with predictions' * dashed}."
    )
    note = f"Points: medians, with all rounds on the line.{' Dashed: predicted.' * dashed}"
    if hidden_from is not None:
        note += " Grey: predicted to be bound by the network."
    return Picture(figure, titled(title, text), note)


def time_and_memory(
    seconds: Mapping[str, Mapping[int, Sequence[float]]],
    kept: Mapping[str, Mapping[int, float]],
    *,
    title: str = "",
) -> Picture:
    """Draw the time of a step against a model's width, and what it keeps against the batch.

    Left, medians with a line from the fastest to the slowest round; right, bytes. All axes are
    logarithmic. The text holds no number.

    Parameters
    ----------
    seconds
        By precision, for each width, the seconds of every round.
    kept
        By precision, for each number of images, the bytes that autograd keeps for backward.

    Examples
    --------
    >>> seconds = {"fp32": {32: [2e-4, 3e-4], 512: [4e-3, 5e-3]}, "bf16": {32: [3e-4, 4e-4]}}
    >>> kept = {"fp32": {64: 1024, 512: 8192}, "bf16": {64: 1536, 512: 5120}}
    >>> picture = labkit.figures.time_and_memory(seconds, kept, title="2 ranks on 2 cores")
    >>> print(picture.text.splitlines()[0])
    2 ranks on 2 cores. Left: time of a step against the width, for fp32, bf16. Right: bytes kept \
for backward against the images per rank, for fp32, bf16.
    """
    figure, (left, right) = chart(7.5, 3.2, x=2, panels=2)
    left.set_yscale("log")
    right.set_yscale("log", base=2)
    for name, _, colour, marker in series(dict.fromkeys([*seconds, *kept])):
        look = {"marker": marker, "linewidth": 1.2}
        if own := dict(sorted(seconds.get(name, {}).items())):
            draw_rounds(left, [*own], [*own.values()], name, colour, **look)
        if held := dict(sorted(kept.get(name, {}).items())):
            right.plot([*held], [*held.values()], color=colour, markersize=5, **look)
    number_ticks(left, sorted({width for own in seconds.values() for width in own}))
    number_ticks(right, sorted({images for held in kept.values() for images in held}))
    seconds_ticks(left)
    bytes_axis(right.yaxis)
    style_axes(left, title="Time of a step", xlabel="width", ylabel="time (seconds)")
    style_axes(right, title="Kept for backward", xlabel="images per rank", ylabel="bytes")
    style_legend(left, loc="upper left")
    head(figure, title)
    text = (
        f"{title + '. ' if title else ''}Left: time of a step against the width, for "
        f"{', '.join(seconds)}. Right: bytes kept for backward against the images per rank, for "
        f"{', '.join(kept)}."
    )
    note = "Left, a point is a median; its line ends at the fastest and slowest."
    return Picture(figure, text, note)
