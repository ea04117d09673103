"""Draw pipelines: which stage did what when, what it kept, and the share of time it was idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import UsageError
from ..rank_names import rank_colour
from .picture import Picture
from .style import (
    CARD,
    INK,
    LABEL_SIZE,
    MARKERS,
    NOTE_SIZE,
    SERIES,
    new_figure,
    style_axes,
    style_legend,
    text_on,
)

#: How much of a forward's colour is seen; a backward has all of it.
LIGHT = 0.4
#: Inches of a lane, and of what stands above and below the lanes of a pipeline.
LANE, AROUND = 0.36, 0.75


class Pass(NamedTuple):
    """One pass of a micro-batch through a stage: ``"F0"`` or ``"B0"``, its begin and end in
    seconds, and how many micro-batches the stage kept after it."""

    name: str
    begin: float
    end: float
    kept: int


def idle(stages: Sequence[Sequence[tuple[str, float, float, int]]]) -> float:
    """Return the share of all stages' time in which they did not work, from 0 to 1.

    The time runs from the first begin of any stage to the last end; ``stages`` has one list of
    passes per stage, see :class:`Pass`.

    Examples
    --------
    >>> labkit.figures.idle([[("F0", 0.0, 1.0, 1)], [("F0", 1.0, 2.0, 1)]])
    0.5
    """
    passes = [Pass(*each) for own in stages for each in own]
    span = max(each.end for each in passes) - min(each.begin for each in passes)
    return 1 - sum(each.end - each.begin for each in passes) / (len(stages) * span)


def pipelines(
    records: Mapping[str, Sequence[Sequence[tuple[str, float, float, int]]]],
    *,
    how_to_read: str = "Light: forward. Dark: backward. Number: micro-batch. White: the bubble. "
    "Right: the most micro-batches that a rank kept at once.",
) -> Picture:
    """Draw recorded pipelines below each other, one lane per stage, on one scale of time.

    Parameters
    ----------
    records
        By title, a pipeline: one list per stage, of ``(name, begin, end, kept)`` per pass; see
        :class:`Pass`. The earliest begin of each pipeline is 0 on the axis.

    Returns
    -------
    Picture
        Bars in the ranks' colours; beside each lane, the most micro-batches that it kept at once.
        The text has these numbers, and no times.

    Raises
    ------
    UsageError
        If a pipeline or a stage has no passes.

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
    heights = [AROUND + LANE * len(stages) for stages in pipes.values()]
    figure = new_figure(7.8, sum(heights))
    panels = figure.subplots(
        len(pipes), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    whole, lines = 0.0, []
    for axes, (title, stages) in zip(panels, pipes.items(), strict=True):
        start = min(each.begin for passes in stages for each in passes)
        span = max(each.end for passes in stages for each in passes) - start
        whole = max(whole, span)
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
    return Picture(figure, "\n".join(lines), how_to_read)


def bubble(
    counts: Sequence[int],
    measured: Mapping[str, Sequence[float]],
    *,
    stages: int,
    how_to_read: str = "Line: the formula, which holds for whole numbers m. Marks: recorded by "
    "the ranks. Lower is better.",
) -> Picture:
    """Draw the share of time in which a pipeline's stages are idle against its micro-batches.

    Parameters
    ----------
    counts
        Numbers of micro-batches m.
    measured
        By the name of a schedule, its idle share (0 to 1) for each of ``counts``; at most three.
    stages
        Their number p, for the line (p − 1) / (m + p − 1).

    Returns
    -------
    Picture
        Its text holds no measured number.

    Raises
    ------
    UsageError
        If a schedule does not have one share per count.

    Examples
    --------
    >>> picture = labkit.figures.bubble([1, 2], {"GPipe": [0.76, 0.61]}, stages=4)
    >>> print(picture.text.splitlines()[0])
    Share of time idle against micro-batches (1, 2) in 4 stages: GPipe, and (p − 1) / (m + p − 1).
    """
    for name, shares in measured.items():
        if len(shares) != len(counts):
            raise UsageError(f"{name!r} has {len(shares)} shares for {len(counts)} counts")
    figure = new_figure(5.5, 3.0)
    axes = figure.subplots()
    grid = np.linspace(min(counts), max(counts), 200)
    law = (stages - 1) / (grid + stages - 1)
    axes.plot(grid, law, color=SERIES[0], label="(p − 1) / (m + p − 1)", linewidth=1.4)
    for (name, shares), colour, marker in zip(
        measured.items(), SERIES[1:], MARKERS[1:], strict=False
    ):
        axes.plot(counts, shares, marker, color=colour, label=name, alpha=0.85)
    axes.set_ylim(0, 1)
    axes.set_xticks(list(counts))
    style_axes(axes, title="The bubble", xlabel="micro-batches m", ylabel="share of time idle")
    style_legend(axes, loc="upper right")
    text = (
        f"Share of time idle against micro-batches ({', '.join(map(str, counts))}) in {stages} "
        f"stages: {', '.join(measured)}, and (p − 1) / (m + p − 1)."
    )
    return Picture(figure, text, how_to_read)
