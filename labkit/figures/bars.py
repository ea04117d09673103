"""Draw amounts: memory by what fills it and over a step, times beside what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..base.errors import UsageError
from ..base.rank_names import rank_colour
from .chart import chart, check_length, series, titled
from .picture import Picture
from .style import (
    CARD,
    INK,
    NOTE_SIZE,
    PARTS,
    SERIES,
    bytes_unit,
    format_bytes,
    format_seconds,
    ink_of,
    new_figure,
    seconds_unit,
    style_axes,
    style_legend,
    text_on,
)

#: Most ranks whose bars are told apart.
MAX_RANKS = 32
#: Inches of a figure beside its bars: axis on the left, names of the parts on the right.
BESIDE = 2.6
#: A bar's widest distance from the next, and its width in that.
PITCH, SHARE = 0.95, 0.72
#: The same for bars with names of their own.
NAMED_PITCH = 1.7
#: Height of the bars' axes, and of a line of text, in inches; a character's width in ems.
HEIGHT, TEXT, EM = 2.9, 0.17, 0.64


def memory(
    parts: Mapping[str, Sequence[float]],
    *,
    title: str = "",
    exact: bool = False,
    each: str = "rank",
    names: Sequence[str] | None = None,
    how_to_read: str = "",
) -> Picture:
    """Draw the memory of every rank, or of every device, as a bar stacked from its parts, with the
    size of each part where it fits and the total above.

    Parameters
    ----------
    parts
        For each part, such as ``"parameters"`` or ``"gradients"``, its bytes on every rank, in
        rank order. At most 6 parts and 32 ranks; the first is lowest.
    title
        What was measured.
    names
        What each bar is, where it is not one rank of several: two ways to train on the same rank,
        say, to be compared on one axis.
    exact
        Whether the bytes are the same in every run, as those counted from tensors are; then the
        text holds them too. Leave it False for what an allocator reports.
    each
        What has a bar: "rank", or "device" where one process has several.

    Examples
    --------
    >>> picture = labkit.figures.memory(
    ...     {"parameters": [4096, 4096], "gradients": [4096, 1024]}, exact=True
    ... )
    >>> print(picture.text)
    Memory of 2 ranks as stacked bars, from below: parameters, gradients.
    rank 0: parameters 4 KiB, gradients 4 KiB
    rank 1: parameters 4 KiB, gradients 1 KiB
    A bar is the memory of one rank, and its colours say what fills it.
    """
    sizes = _sizes(parts)
    ranks = sizes.shape[1]
    totals = sizes.sum(axis=0)
    unit, name = bytes_unit(float(totals.max()))
    if names is not None and len(names) != ranks:
        raise UsageError(f"names has {len(names)} names for {ranks} bars")
    pitch = min(PITCH if names is None else NAMED_PITCH, 5.4 / ranks)
    figure = new_figure(max(3.4, ranks * pitch + BESIDE), HEIGHT + 0.6)
    axes = figure.subplots()
    top = float(totals.max()) / unit * 1.1 or 1.0
    bottom = np.zeros(ranks)
    for (part, row), colour in zip(zip(parts, sizes / unit, strict=True), PARTS, strict=False):
        axes.bar(range(ranks), row, SHARE, bottom=bottom, color=colour, edgecolor=CARD,
                 linewidth=0.8, label=part)  # fmt: skip
        for rank, size in enumerate(row):
            if size / top * HEIGHT > TEXT and _fits(_number(size), pitch * SHARE):
                axes.text(rank, bottom[rank] + size / 2, _number(size), ha="center", va="center",
                          color=text_on(colour), fontsize=NOTE_SIZE)  # fmt: skip
        bottom += row
    for rank, total in enumerate(bottom):
        if _fits(_number(total), pitch):
            axes.annotate(_number(total), (rank, total), xytext=(0, 3), weight="bold",
                          textcoords="offset points", ha="center", color=INK,
                          fontsize=NOTE_SIZE)  # fmt: skip
    wide = names is not None or _fits(f"{each} 00", pitch)
    words = list(names) if names is not None else [f"{each} {rank}" for rank in range(ranks)]
    step = 1 if wide or ranks <= 16 else 2  # where words fit, all of them do
    ticks = range(0, ranks, step)
    axes.set_xticks(ticks, words if wide else [str(rank) for rank in ticks])
    axes.set_xlim(-0.6, ranks - 0.4)
    axes.set_ylim(0, top)
    style_axes(axes, title=title, xlabel="" if wide else each, ylabel=f"memory ({name})", grid="y")
    axes.tick_params(axis="x", length=0)
    for rank, label in zip(ticks, axes.get_xticklabels(), strict=True):
        label.set(color=ink_of(rank_colour(rank)) if names is None else INK, weight="bold")
    handles, labels = axes.get_legend_handles_labels()
    # from top to bottom, as in the bars
    style_legend(axes, handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    start = f"{title}: memory" if title else "Memory"
    of = " and ".join(names) if names is not None else f"{ranks} {each}{'s' * (ranks > 1)}"
    lines = [f"{start} of {of} as stacked bars, from below: {', '.join(parts)}."]
    for word, own in zip(words, sizes.T, strict=True) if exact else ():
        amounts = (f"{part} {format_bytes(s)}" for part, s in zip(parts, own, strict=True))
        lines.append(f"{word}: {', '.join(amounts)}")
    note = how_to_read or f"A bar is the memory of one {each}, and its colours say what fills it."
    return Picture(figure, "\n".join(lines), note)


def _sizes(parts: Mapping[str, Sequence[float]]) -> np.ndarray:
    """Return bytes, a row a part and a column a rank."""
    if not 1 <= len(parts) <= len(PARTS):
        raise UsageError(f"parts has {len(parts)} parts; a figure shows 1 to {len(PARTS)}")
    rows = {part: np.asarray(row, dtype=float).reshape(-1) for part, row in parts.items()}
    lengths = {part: len(row) for part, row in rows.items()}
    if len(set(lengths.values())) > 1:
        raise UsageError(f"parts differ in their number of ranks: {lengths}")
    if not 1 <= len(next(iter(rows.values()))) <= MAX_RANKS:
        raise UsageError(f"a figure shows 1 to {MAX_RANKS} ranks, not {max(lengths.values())}")
    for part, row in rows.items():
        if not (np.isfinite(row).all() and (row >= 0).all()):
            raise UsageError(f"{part} has sizes that are below zero or missing")
    return np.array(list(rows.values()))


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _fits(text: str, inches: float) -> bool:
    return len(text) * EM * NOTE_SIZE / 72 < inches


def expected_bars(
    expected: Mapping[str, float], measured: Mapping[str, float], *, title: str = ""
) -> Picture:
    """Draw predicted seconds as dashed bars, and measured ones as diamonds on them.

    The text holds the predictions and no measured number.

    Parameters
    ----------
    expected
        By name, from the top: the predicted seconds, above zero.
    measured
        By the same names: the measured seconds; a name may be missing.

    Examples
    --------
    >>> picture = labkit.figures.expected_bars({"ring": 0.5, "two levels": 0.34}, {"ring": 0.46})
    >>> print(picture.text.splitlines()[0])
    Predicted: ring 500 ms, two levels 340 ms.
    """
    if not expected or not all(seconds > 0 for seconds in expected.values()):
        raise UsageError("expected needs at least one name, and seconds above zero")
    if strange := [name for name in measured if name not in expected]:
        raise UsageError(f"measured names {strange[0]!r}, which is not among the expected ones")
    unit, name_of_unit = seconds_unit(max([*expected.values(), *measured.values()]))
    figure, axes = chart(7.0, 0.9 + 0.5 * len(expected))
    rows = range(len(expected))
    axes.barh(rows, [seconds / unit for seconds in expected.values()], 0.5, facecolor="none",
              edgecolor=SERIES[0], linestyle="--", linewidth=1.4, label="predicted")  # fmt: skip
    places = [row for row, name in enumerate(expected) if name in measured]
    seconds = [measured[name] / unit for name in expected if name in measured]
    if places:
        axes.plot(seconds, places, "D", color=SERIES[1], zorder=3, label="measured")
    axes.set_yticks(rows, list(expected))
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    style_axes(axes, title=title, xlabel=f"time ({name_of_unit})", grid="x")
    style_legend(axes, loc="best")
    told = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in expected.items())
    note = "Dashed: predicted. Diamond: measured, where that was possible."
    return Picture(figure, titled(title, f"Predicted: {told}."), note)


def over_a_step(
    held: Mapping[str, Sequence[float]],
    moments: Sequence[str],
    *,
    title: str = "",
    how_to_read: str = "",
) -> Picture:
    """Draw the bytes that are held at each moment of a step, one stepped line per way to train.

    Parameters
    ----------
    held
        By name, up to four: the bytes at each moment. The text holds each line's peak.
    moments
        What happens then, such as ``"forward 0"``.

    Examples
    --------
    >>> held = {"whole": [1024, 4096, 4096], "sharded": [1024, 2048, 1024]}
    >>> picture = labkit.figures.over_a_step(held, ["start", "forward", "end"], title="Parameters")
    >>> print(picture.text)
    Parameters over a step, at 3 moments from start to end.
    whole: at most 4 KiB, first at forward
    sharded: at most 2 KiB, first at forward
    """
    for name, line in held.items():
        check_length(name, line, "numbers", moments)
    most = max((max(line) for line in held.values()), default=0)
    unit, unit_name = bytes_unit(float(most))
    figure, axes = chart(7.2, 3.2)
    places = range(len(moments))
    lines = [f"{title or 'What is held'} over a step, at {len(moments)} moments from {moments[0]} "
             f"to {moments[-1]}."]  # fmt: skip
    for name, line, colour, _ in series(held, "lines"):
        sizes = [size / unit for size in line]
        axes.plot(places, sizes, drawstyle="steps-mid", color=colour, linewidth=2, label=name)
        axes.plot(places, sizes, "o", color=colour, markersize=4)
        first = moments[list(line).index(max(line))]
        lines.append(f"{name}: at most {format_bytes(max(line))}, first at {first}")
    axes.set_ylim(0, most / unit * 1.15 or 1.0)
    axes.set_xticks(places, [moment.replace(" ", "\n") for moment in moments])
    style_axes(axes, title=title, ylabel=f"held ({unit_name})", grid="y")
    style_legend(axes, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return Picture(figure, "\n".join(lines), how_to_read)
