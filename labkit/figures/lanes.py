"""Draw what ran when in several lanes: streams of a GPU, threads, processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import UsageError
from .picture import Picture
from .style import CARD, LABEL_SIZE, SERIES, new_figure, style_axes, text_on, work_style

#: Most lanes of one figure, which have a colour each.
MAX_LANES = len(SERIES)
#: Inches of a lane, and of what stands above and below all lanes; a bar's part of its lane.
LANE, AROUND, BAR = 0.42, 0.9, 0.72
#: How the words of a span begin that only waits: it is hatched.
WAITS = "wait"


class Span(NamedTuple):
    """Something that ran in a lane: its words, and when it began and ended, in seconds."""

    lane: str
    words: str
    start: float
    end: float


def lanes(spans: Sequence[Span], *, title: str = "", how_to_read: str = "") -> Picture:
    """Draw one bar per span, each in the row of its lane, over one axis of time.

    Parameters
    ----------
    spans
        ``(lane, words, start, end)``; lanes are drawn from above in the order in which they are
        first named, at most 4. The earliest start is 0 on the axis. Spans whose words begin with
        "wait" are hatched.
    title
        What was run.
    how_to_read
        One sentence that says what to look for.

    Returns
    -------
    Picture
        Its text has the words of each lane, in order, and no times.

    Raises
    ------
    UsageError
        If there is no span, there are too many lanes, or a span ends before it starts.

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
    begin = min(span.start for span in spans)
    whole = max(span.end for span in spans) - begin or 1.0
    figure = new_figure(6.4, AROUND + LANE * len(names))
    axes = figure.subplots()
    for span in spans:
        row = names.index(span.lane)
        width = max(span.end - span.start, whole / 100)
        left = span.start - begin
        waits = span.words.startswith(WAITS)
        own = {"color": SERIES[row], "edgecolor": CARD, "linewidth": 0.8}
        axes.barh(row, width, BAR, left=left, **(work_style("waiting") if waits else own))
        inside = width > whole / 4
        axes.text(
            left + width / 2 if inside else left + width + whole / 80, row, span.words,
            ha="center" if inside else "left", va="center_baseline", fontsize=LABEL_SIZE,
            color=text_on(SERIES[row] if inside and not waits else CARD), parse_math=False,
        )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(0, whole * 1.2), ylim=(len(names) - 0.5, -0.5))
    style_axes(axes, title=title, xlabel="time (seconds)", grid="x")
    axes.tick_params(axis="y", length=0)
    lines = [title] if title else []
    for name in names:
        inside_lane = sorted((s for s in spans if s.lane == name), key=lambda span: span.start)
        lines.append(f"{name}: {', '.join(span.words for span in inside_lane)}")
    return Picture(figure, "\n".join(lines), how_to_read)
