"""Draw what ran when in several lanes: streams of a GPU, threads, stages of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..base.errors import UsageError
from ..base.rank_names import rank_colour
from .chart import chart, check_length, number_ticks, series
from .picture import Picture
from .style import (
    CARD,
    INK,
    LABEL_SIZE,
    NOTE_SIZE,
    SERIES,
    WORK,
    new_figure,
    style_axes,
    style_legend,
    text_on,
    work_style,
)

#: Most lanes of one figure, which have a colour each.
MAX_LANES = len(SERIES)
#: Inches of a lane, and of what stands above and below all lanes; a bar's part of its lane.
LANE, AROUND, BAR = 0.42, 0.9, 0.72
#: The same of a pipeline, and how much of a forward's colour is seen; a backward has all of it.
STAGE, AROUND_STAGES, LIGHT = 0.36, 0.75, 0.4
#: How the words of a span begin that only waits: it is hatched.
WAITS = ("wait", "exposed")
#: Units of time: how many there are in a second, and the axis' name.
UNITS = {"s": (1.0, "time (seconds)"), "ms": (1e3, "time (ms)")}


Passes = Sequence[tuple[str, float, float, int]]


class Span(NamedTuple):
    """Something that ran in a lane: its words, and when it began and ended, in seconds."""

    lane: str
    words: str
    start: float
    end: float


class Pass(NamedTuple):
    """One pass of a micro-batch through a stage: ``"F0"`` or ``"B0"``, its begin and end in
    seconds, and how many micro-batches the stage kept after it."""

    name: str
    begin: float
    end: float
    kept: int


def lanes(
    spans: Sequence[Span],
    *,
    kinds: Mapping[str, str] | None = None,
    unit: str = "s",
    title: str = "",
    how_to_read: str = "",
) -> Picture:
    """Draw one bar per span, each in the row of its lane, over one axis of time.

    The text has the words of each lane, in order, and no times.

    Parameters
    ----------
    spans
        ``(lane, words, start, end)``; lanes are drawn from above in the order in which they are
        first named, at most 4. The earliest start is 0 on the axis. Spans whose words begin with
        "wait" or "exposed" are hatched; those without words are only counted in the text.
    kinds
        By lane, the kind of its work, as a timeline colours it: "forward", "backward", "optimizer",
        "communication". Without one, each lane has a colour of its own.
    unit
        Of the axis: "s" or "ms".
    title
        What was run.
    how_to_read
        One sentence that says what to look for.

    Examples
    --------
    >>> picture = labkit.figures.lanes(
    ...     [("NCCL's stream", "all_reduce", 0.0, 0.5), ("another stream", "add 100", 0.0, 0.1)]
    ... )
    >>> print(picture.text)
    NCCL's stream: all_reduce
    another stream: add 100
    """
    spans = [Span(*span) for span in spans]
    names = list(dict.fromkeys(span.lane for span in spans))
    if not 1 <= len(names) <= MAX_LANES:
        raise UsageError(f"spans has {len(names)} lanes; a figure shows 1 to {MAX_LANES}")
    if wrong := [span for span in spans if not span.start <= span.end]:
        raise UsageError(f"{wrong[0].words!r} ends before it starts")
    per_second, xlabel = UNITS[unit]
    begin = min(span.start for span in spans)
    whole = per_second * (max(span.end for span in spans) - begin) or 1.0
    figure = new_figure(6.4, AROUND + LANE * len(names))
    axes = figure.subplots()
    colours = {
        name: WORK[kinds[name]].colour if kinds else SERIES[row] for row, name in enumerate(names)
    }
    for span in spans:
        row = names.index(span.lane)
        width = max(per_second * (span.end - span.start), whole / 100)
        left = per_second * (span.start - begin)
        waits = span.words.startswith(WAITS)
        own = {"color": colours[span.lane], "edgecolor": CARD, "linewidth": 0.8}
        axes.barh(row, width, BAR, left=left, **(work_style("waiting") if waits else own))
        inside = width > whole * min(1 / 4, 0.03 * len(span.words))  # it fits
        axes.text(
            left + width / 2 if inside else left + width + whole / 80, row, span.words,
            ha="center" if inside else "left", va="center_baseline", fontsize=LABEL_SIZE,
            color=text_on(colours[span.lane] if inside and not waits else CARD), parse_math=False,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(0, whole * 1.2), ylim=(len(names) - 0.5, -0.5))
    style_axes(axes, title=title, xlabel=xlabel, grid="x")
    axes.tick_params(axis="y", length=0)
    lines = [title] if title else []
    for name in names:
        inside_lane = sorted((s for s in spans if s.lane == name), key=lambda span: span.start)
        said = [span.words for span in inside_lane if span.words]
        if unsaid := len(inside_lane) - len(said):
            said.append(f"{unsaid} bars")
        lines.append(f"{name}: {', '.join(said)}")
    return Picture(figure, "\n".join(lines), how_to_read)


def idle(stages: Sequence[Passes]) -> float:
    """Return the share of all stages' time in which they did not work, from 0 to 1.

    The time runs from the first begin of any stage to the last end; ``stages`` has one list of
    passes per stage, see :func:`pipelines`.

    Examples
    --------
    >>> labkit.figures.idle([[("F0", 0.0, 1.0, 1)], [("F0", 1.0, 2.0, 1)]])
    0.5
    """
    passes = [Pass(*each) for own in stages for each in own]
    span = max(each.end for each in passes) - min(each.begin for each in passes)
    return 1 - sum(each.end - each.begin for each in passes) / (len(stages) * span)


def pipelines(records: Mapping[str, Sequence[Passes]]) -> Picture:
    """Draw recorded pipelines below each other, one lane per stage, on one scale of time.

    Beside each lane stands the most micro-batches that it kept at once. The text has these
    numbers, and no times.

    Parameters
    ----------
    records
        By title, a pipeline: one list per stage, of ``(name, begin, end, kept)`` per pass: ``"F0"``
        or ``"B0"``, seconds, and how many micro-batches the stage kept after it. The earliest
        begin of each pipeline is 0 on the axis.

    Examples
    --------
    >>> stages = [
    ...     [("F0", 0.0, 1.0, 1), ("B0", 4.0, 6.0, 0)], [("F0", 1.0, 2.0, 1), ("B0", 2.0, 4.0, 0)]
    ... ]
    >>> print(labkit.figures.pipelines({"m = 1": stages}).text.splitlines()[0])
    m = 1: stage 0 keeps 1, stage 1 keeps 1.
    """
    pipes = {
        title: [[Pass(*each) for each in passes] for passes in stages]
        for title, stages in records.items()
    }
    if not pipes or not all(stages and all(stages) for stages in pipes.values()):
        raise UsageError("a pipeline needs stages, and each stage at least one pass")
    heights = [AROUND_STAGES + STAGE * len(stages) for stages in pipes.values()]
    figure = new_figure(7.8, sum(heights))
    panels = figure.subplots(
        len(pipes), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    whole, lines = 0.0, []
    for axes, (title, stages) in zip(panels, pipes.items(), strict=True):
        start = min(each.begin for passes in stages for each in passes)
        whole = max(whole, *(each.end - start for passes in stages for each in passes))
        keeps = [max(each.kept for each in passes) for passes in stages]
        for stage, passes in enumerate(stages):
            colour = rank_colour(stage)
            for each in passes:
                forward = each.name.startswith("F")
                axes.barh(
                    stage, each.end - each.begin, 0.8, left=each.begin - start, color=colour,
                    alpha=LIGHT if forward else 1.0, edgecolor=CARD, linewidth=0.8,
                )  # fmt: skip
                axes.text(
                    (each.begin + each.end) / 2 - start, stage, each.name[1:], fontsize=7,
                    color=INK if forward else text_on(colour), ha="center",
                    va="center_baseline", clip_on=True,
                )  # fmt: skip
            axes.text(
                1.01, stage, f"keeps {keeps[stage]}", color=INK, fontsize=NOTE_SIZE, va="center",
                transform=axes.get_yaxis_transform(),
            )  # fmt: skip
        axes.set_ylim(len(stages) - 0.5, -0.5)
        axes.set_yticks(range(len(stages)), [f"rank {stage}" for stage in range(len(stages))])
        axes.tick_params(axis="y", length=0)
        style_axes(axes, title=title, grid="x")
        each_keeps = ", ".join(f"stage {stage} keeps {k}" for stage, k in enumerate(keeps))
        lines.append(f"{title}: {each_keeps}.")
    panels[-1].set_xlim(0, whole or 1.0)
    panels[-1].set_xlabel("time (seconds)", color=INK, fontsize=LABEL_SIZE)
    note = (
        "Light: forward. Dark: backward. Number: micro-batch. White: the bubble. Right: the most "
        "micro-batches that a rank kept at once."
    )
    return Picture(figure, "\n".join(lines), note)


def bubble(
    counts: Sequence[int], measured: Mapping[str, Sequence[float]], *, stages: int
) -> Picture:
    """Draw the share of time in which a pipeline's stages are idle against its micro-batches.

    The text holds no measured number.

    Parameters
    ----------
    counts
        Numbers of micro-batches m.
    measured
        By the name of a schedule, its idle share (0 to 1) for each of ``counts``; at most three.
    stages
        Their number p, for the line (p − 1) / (m + p − 1).

    Examples
    --------
    >>> picture = labkit.figures.bubble([1, 2], {"GPipe": [0.76, 0.61]}, stages=4)
    >>> print(picture.text.splitlines()[0])
    Share of time idle against micro-batches (1, 2) in 4 stages: GPipe, and (p − 1) / (m + p − 1).
    """
    law = "(p − 1) / (m + p − 1)"
    figure, axes = chart(5.5, 3.0)
    grid = np.linspace(min(counts), max(counts), 200)
    for name, shares, colour, marker in series({law: (), **measured}):
        if name == law:
            formula = (stages - 1) / (grid + stages - 1)
            axes.plot(grid, formula, color=colour, label=law, linewidth=1.4)
        else:
            check_length(repr(name), shares, "shares", counts)
            axes.plot(counts, shares, marker, color=colour, label=name, alpha=0.85)
    axes.set_ylim(0, 1)
    number_ticks(axes, counts)
    style_axes(axes, title="The bubble", xlabel="micro-batches m", ylabel="share of time idle")
    style_legend(axes, loc="upper right")
    text = (
        f"Share of time idle against micro-batches ({', '.join(map(str, counts))}) in {stages} "
        f"stages: {', '.join(measured)}, and {law}."
    )
    note = (
        "Line: the formula, which holds for whole numbers m. Marks: recorded by the ranks. Lower "
        "is better."
    )
    return Picture(figure, text, note)
