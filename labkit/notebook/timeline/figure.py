"""Draw who did what when: a lane for each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...base.rank_names import rank_colour
from ...figures.picture import Picture
from ...figures.style import (
    CARD,
    GRID,
    INK,
    MAX_WIDTH,
    NOTE_SIZE,
    WORK,
    ink_of,
    new_figure,
    seconds_unit,
    style_axes,
    text_on,
    work_style,
)
from ...wire.recording import WORK as COMPUTING
from ...wire.recording import Interval, Span, union
from .merge import rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


HOW_TO_READ = (
    "Each rank has two rows. Above is its work, in its main thread, or on its GPU where it has "
    "used one (nothing drawn: anything else); below is its communication, with the same number on "
    "every rank that takes part. Hatched is waiting: above for communication to end, below for a "
    "rank that has not come yet."
)
#: A lane from its top, in inches: margin, row of the main thread, gap; then come the rows of
#: communication, which share TALK inches within these limits.
MARGIN, WORK_ROW, GAP = 0.07, 0.2, 0.03
TALK, LOW_ROW, HIGH_ROW = 1.0, 0.1, 0.145
#: Rows that communication at the same time may take; more begin again at the first, unnumbered.
MAX_ROWS = 10
#: Inches of the axes, about, to tell how much time a dot of the screen is.
WIDTH = 7.0
#: Inches of a timeline's title.
TITLE = 0.25
#: Inches that a digit needs; its size in points, and as a share of its row's height.
DIGIT, DIGIT_SIZE, DIGIT_SHARE = 0.075, 8, 0.78


class Place(NamedTuple):
    """A row: inches from the top of its lane, and its height."""

    top: float
    height: float


class Part(NamedTuple):
    """One timeline of a figure: its title, what its ranks did, and how long each recorded."""

    title: str
    spans: Sequence[Span]
    seconds: Mapping[int, float]


def draw(parts: Sequence[Part], alt: str) -> Picture:
    """Draw what ranks did, a lane for each; several timelines below each other, on one axis.

    Stretches shorter than a dot of the screen are joined with their neighbours, or one dot wide.
    """
    ends = [s.stop for part in parts for s in part.spans]
    end = max([1e-6, *(s for part in parts for s in part.seconds.values()), *ends])
    unit, name = seconds_unit(end)
    lanes = [_lanes(part.spans) for part in parts]
    heights = [lane * len(part.seconds) for part, (lane, _) in zip(parts, lanes, strict=True)]
    titles = TITLE * sum(bool(part.title) for part in parts)
    figure = new_figure(MAX_WIDTH - 0.3, sum(heights) + titles + 0.75)
    grid = figure.subplots(
        len(parts), squeeze=False, sharex=True, gridspec_kw={"height_ratios": heights}
    )
    kinds: set[str] = set()
    for part, axes, (lane, talk) in zip(parts, grid[:, 0], lanes, strict=True):
        style_axes(axes, xlabel=f"time ({name})" if part is parts[-1] else "", grid="x")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        if part.title:
            axes.set_title(part.title, loc="left", color=INK, fontsize=NOTE_SIZE, weight="bold")
        kinds |= _draw_part(axes, part, lane, talk, end, unit)
    _legend(grid[0, 0], kinds, 1 + TITLE / heights[0] if parts[0].title else 1.0)
    return Picture(figure, alt, HOW_TO_READ)


def _lanes(spans: Sequence[Span]) -> tuple[float, dict[int, Place]]:
    """Return the height of a lane, in inches, and the row of each communication in it."""
    row_of = rows(spans)
    shown = min(1 + max(row_of.values(), default=0), MAX_ROWS)
    height = min(max(TALK / shown, LOW_ROW), HIGH_ROW)
    top = MARGIN + WORK_ROW + GAP
    talk = {n: Place(top + row % MAX_ROWS * height, height) for n, row in row_of.items()}
    return top + height * shown + MARGIN, talk


def _draw_part(
    axes: Axes, part: Part, lane: float, talk: dict[int, Place], end: float, unit: float
) -> set[str]:
    """Draw the lanes of one timeline; return the kinds that are in them."""
    ranks, kinds = list(part.seconds), set()
    few = max(rows(part.spans).values(), default=0) < MAX_ROWS
    for i, rank in enumerate(ranks):
        mine = [s for s in part.spans if s.rank == rank]
        if i:
            axes.axhline(i * lane, color=GRID, linewidth=0.8, zorder=0.5)
        for kind, spans, place in _bars(mine, talk):
            if stretches := _of(spans, kind, end / (WIDTH * 96)):
                # a main thread that stands still looks as a communication that waits
                look = "waiting" if kind == "blocked" else kind
                kinds.add(look)
                axes.broken_barh(
                    [(start / unit, (stop - start) / unit) for start, stop in stretches],
                    (i * lane + place.top, place.height),
                    **work_style(look),
                )
        if few:
            _number(axes, mine, talk, i * lane, end, unit)
    axes.set_xlim(0, 1.004 * end / unit)
    axes.set_ylim(lane * len(ranks), 0)
    axes.set_yticks([(i + 0.5) * lane for i in range(len(ranks))], [f"rank {r}" for r in ranks])
    for tick, rank in zip(axes.get_yticklabels(), ranks, strict=True):
        tick.set(color=ink_of(rank_colour(rank)), weight="bold")
    return kinds


def _bars(
    spans: Sequence[Span], talk: dict[int, Place]
) -> Iterator[tuple[str, Sequence[Span], Place]]:
    """Yield kinds, among which spans they are, and their rows: what is later lies on top."""
    for kind in (*COMPUTING, "blocked"):
        yield kind, spans, Place(MARGIN, WORK_ROW)
    for place in sorted(set(talk.values())):
        here = [s for s in spans if s.number is not None and talk[s.number] == place]
        for kind in ("communication", "waiting"):
            yield kind, here, place


def _of(spans: Sequence[Span], kind: str, dot: float) -> list[Interval]:
    """Return the stretches of a kind, those that a dot cannot tell apart joined."""
    found: list[Interval] = []
    for start, stop in union((s.start, max(s.stop, s.start + dot)) for s in spans
                             if s.kind == kind):  # fmt: skip
        if found and start - found[-1][1] < dot / 2 and stop - start < 2 * dot:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found


def _number(
    axes: Axes, spans: Sequence[Span], talk: dict[int, Place], top: float, end: float, unit: float
) -> None:
    """Write the number of each communication on it, where there is room: where it does not wait,
    if there is enough of that."""
    waits = {s.number: s.stop for s in spans if s.kind == "waiting"}
    for span in spans:
        if span.kind != "communication" or span.number is None:
            continue
        text = str(span.number)
        need = end * DIGIT * (len(text) + 0.6) / WIDTH
        start = waits.get(span.number, span.start)
        on_hatch = span.stop - start < need
        if on_hatch:
            start = span.start
        if span.stop - start < need:
            continue
        place = talk[span.number]
        axes.text(
            (start + span.stop) / 2 / unit,
            top + place.top + 0.53 * place.height,
            text,
            ha="center",
            va="center_baseline",
            fontsize=min(DIGIT_SIZE, 72 * DIGIT_SHARE * place.height),
            color=INK if on_hatch else text_on(WORK["communication"].colour),
            clip_on=True,
            bbox={"facecolor": CARD, "edgecolor": "none", "pad": 0.8} if on_hatch else None,
        )


def _legend(axes: Axes, kinds: set[str], bottom: float) -> None:
    """Name the kinds that are there, above the axes, whose height is 1."""
    from matplotlib.patches import Patch

    shown = [kind for kind in WORK if kind in kinds]
    handles = [Patch(label=kind, **work_style(kind)) for kind in shown]
    if handles:
        axes.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0, bottom),
            ncols=len(handles),
            frameon=False,
            labelcolor=INK,
            fontsize=NOTE_SIZE,
            handlelength=1.4,
            columnspacing=1.4,
            borderaxespad=0.2,
        )
