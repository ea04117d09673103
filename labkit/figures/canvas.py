"""Draw boxes for what every rank holds, and arrows between them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.rank_names import rank_colour
from .drawings import Sheet
from .moves import COMBINED as TOGETHER
from .moves import Moves, Owner
from .picture import MARGIN
from .style import COMBINED, GRID, MAX_WIDTH, NOTE_SIZE, SOFT_INK, TITLE_SIZE, ink_of
from .values import Block, lay_out, number

#: A value that several ranks held before, so that nobody can tell whose it is.
ANYBODYS = "#D9D9D9"
#: Inches: for "rank 12" and for a row's distance from the next.
LABEL = 0.78
ROW_GAP = 0.11
#: Width of the bar that stands for many arrows, and how many make too many.
BAR = 0.26
DENSE = 24


class Canvas:
    """The figure of a layout, in inches from its left upper corner."""

    def __init__(
        self,
        columns: Sequence[Sequence[list[np.ndarray]]],
        names: Sequence[int],
        title: str,
        heads: tuple[str, str] = ("before", "after"),
    ) -> None:
        gap = 1.15 + 0.05 * min(len(names), 8)
        self.layout = layout = lay_out(columns, MAX_WIDTH - 2 * MARGIN - LABEL - gap)
        self.names = names
        self.column_heads = heads
        wide, high = layout.box
        self.left = (LABEL, LABEL + layout.width(0) * wide + gap)
        width = self.left[1] + layout.width(1) * wide
        #: Where a title would have to be broken; a monospaced character is 0.6 ems wide.
        most = int((MAX_WIDTH - 2 * MARGIN) * 72 / (0.603 * TITLE_SIZE))
        self.title = "\n".join(textwrap.wrap(title, most, subsequent_indent="    "))
        top = 0.22 * (self.title.count("\n") + 1) + 0.1 if title else 0.0
        self.heads = top + 0.1
        y = top + 0.3
        between = ROW_GAP if len(names) <= 8 else ROW_GAP / 2
        self.middles = []
        for row in range(len(names)):
            self.middles.append(y + layout.height(row) * high / 2)
            y += layout.height(row) * high + between
        y -= between
        self.sheet = Sheet(width, y)
        self.figure, self.axes = self.sheet.figure, self.sheet.axes
        #: Arrows run between these.
        self.start = self.left[0] + layout.width(0) * wide + 0.1
        self.end = self.left[1] - 0.1
        self.bar = (self.start + self.end) / 2
        self.thick = 1.4 if len(names) <= 4 else 1.1 if len(names) <= 8 else 0.8

    def draw(self, moves: Moves) -> None:
        """Draw everything."""
        words = self.sheet.words
        code = {"family": "monospace"} if re.match(r"[\w.]+\(", self.title) else {}  # a call
        words((0, 0), self.title, ha="left", va="top", weight="bold", size=TITLE_SIZE,
              linespacing=1.25, **code)  # fmt: skip
        for column, head in enumerate(self.column_heads):
            middle = self.left[column] + self.layout.width(column) * self.layout.box[0] / 2
            words((middle, self.heads), head, colour=SOFT_INK, style="italic")
        for row, name in enumerate(self.names):
            words((LABEL - 0.12, self.middles[row]), f"rank {name}", weight="bold",
                  colour=ink_of(rank_colour(name)), ha="right",
                  va="center_baseline")  # fmt: skip
            before, after = (column[row] for column in self.layout.columns)
            self._block(before, 0, row, [row] * len(before.boxes))
            self._block(after, 1, row, moves.owners[row])
        self._arrows(moves.arrows)
        self._meetings(moves.meetings)

    def _block(self, block: Block, column: int, row: int, owners: Sequence[Owner]) -> None:
        """Draw what a rank holds; nothing is a dash."""
        wide, high = self.layout.box
        left = self.left[column]
        if not block.boxes:
            self.sheet.words((left + wide / 2, self.middles[row]), "–", colour=SOFT_INK)
        top = self.middles[row] - block.height * high / 2
        for box, owner in zip(block.boxes, owners, strict=True):
            x, y = left + box.x * wide, top + box.y * high
            colour = self._colour(owner)
            self.sheet.box((x + 0.02, y + 0.02), wide - 0.04, high - 0.04, colour)
            self.sheet.words((x + wide / 2, y + high / 2), number(box.value), on=colour,
                             va="center_baseline", weight="bold",
                             size=self.layout.font)  # fmt: skip

    def _arrows(self, arrows: set[tuple[int, int]]) -> None:
        """Draw arrows from rank to rank; where everybody sends to everybody, through one bar.

        What a rank kept has no arrow: nothing was sent.
        """
        sources = {
            target: tuple(sorted(source for source, end in arrows if end == target))
            for target in range(len(self.names))
        }
        for givers in dict.fromkeys(sources.values()):
            takers = [target for target in sources if sources[target] == givers]
            if _dense(givers, takers):
                self._exchange(givers, takers)
                continue
            for target in takers:
                self._fan([source for source in givers if source != target], target)

    def _fan(self, sources: Sequence[int], target: int) -> None:
        """Draw straight arrows to one rank, spread over its height."""
        spread = min(self.layout.height(target) * self.layout.box[1] * 0.62, 0.3)
        for i, source in enumerate(sources):
            offset = spread * (i / (len(sources) - 1) - 0.5) if len(sources) > 1 else 0.0
            self._arrow(
                (self.start, self.middles[source]),
                (self.end, self.middles[target] + offset),
                rank_colour(self.names[source]),
            )

    def _meetings(self, meetings: Sequence[tuple[list[int], list[int]]]) -> None:
        """Draw lines from every rank that brought something to a dot, and arrows on from it."""
        for givers in dict.fromkeys(tuple(givers) for givers, _ in meetings):
            results = [takers for others, takers in meetings if tuple(others) == givers]
            if dense := _dense(givers, results):
                self._exchange(givers, [])
            for takers in results:
                middle = sum(self.middles[row] for row in takers) / len(takers)
                x = self.start + (self.end - self.start) * 0.62
                if dense:
                    x = self.bar + BAR / 2 + 0.12
                    self._line(takers[0], (x, middle), self.bar, COMBINED)
                else:
                    for row in givers:
                        self._line(row, (x, middle))
                for row in takers:
                    self._arrow((x, middle), (self.end, self.middles[row]), COMBINED)
                self.axes.plot(x, middle, marker="o", color=COMBINED, markeredgewidth=0, zorder=4,
                               markersize=9 if len(self.names) <= 8 else 6)  # fmt: skip

    def _exchange(self, givers: Sequence[int], takers: Sequence[int]) -> None:
        """Draw a bar that stands for an arrow from each giver to each taker."""
        for row in givers:
            self._line(row, (self.bar, self.middles[row]))
        for row in takers:
            self._arrow((self.bar, self.middles[row]), (self.end, self.middles[row]), SOFT_INK)
        top, bottom = (self.middles[pick(givers)] for pick in (min, max))
        self.sheet.box((self.bar - BAR / 2, top - 0.12), BAR, bottom - top + 0.24, GRID, above=3)
        self.sheet.words((self.bar, (top + bottom) / 2), "every rank to every rank", rotation=90,
                         size=NOTE_SIZE)  # fmt: skip

    def _line(
        self, row: int, tip: tuple[float, float], start: float | None = None, colour: str = ""
    ) -> None:
        self.axes.plot(
            [self.start if start is None else start, tip[0]], [self.middles[row], tip[1]],
            lw=self.thick, color=colour or rank_colour(self.names[row]), solid_capstyle="butt",
        )  # fmt: skip

    def _arrow(self, tail: tuple[float, float], tip: tuple[float, float], colour: str) -> None:
        self.sheet.arrow(tail, tip, colour, thick=self.thick)

    def _colour(self, owner: Owner) -> str:
        if owner is None:
            return ANYBODYS
        return COMBINED if owner == TOGETHER else rank_colour(self.names[int(owner)])


def _dense(givers: Sequence[Any], takers: Sequence[Any]) -> bool:
    """Return whether so many lines would cross that nobody could follow one."""
    return min(len(givers), len(takers)) > 2 and len(givers) * len(takers) > DENSE
