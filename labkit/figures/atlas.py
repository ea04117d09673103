"""Draw collectives as lines from box to box, one alone or many on a sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.errors import UsageError
from ..base.rank_names import rank_colour
from .drawings import Sheet
from .gallery import Gallery
from .links import links
from .moves import COMBINED as TOGETHER
from .moves import Held, trace
from .picture import MARGIN, Picture
from .style import COMBINED, LABEL_SIZE, MAX_WIDTH, NOTE_SIZE, SOFT_INK, ink_of
from .values import number, pieces, text, text_width, values

#: What the ranks held before a collective and after it, one entry for each rank.
States = tuple[Sequence[Any], Sequence[Any]]
#: Inches: for the words "before" and "after", between two ranks, lowest width of a box, its height.
LABEL, GAP, NARROWEST, HIGH = 0.44, 0.08, 0.175, 0.23
#: Inches from the top: the ranks' names and the boxes before; from these to the boxes after; from
#: those to the line below.
HEADS, BEFORE, BETWEEN, FOOT = 0.32, 0.44, 0.56, 0.14
#: Font size of the numbers in boxes, in points.
SIZE = 8.0
#: A value that nobody can tell the source of.
ANYBODYS = "#D9D9D9"

HOW_TO_READ = (
    "A line goes from each number to where it is afterwards, in the colour of the rank that held "
    "it; it is dashed if the number stays on its rank. Dark grey: computed from several numbers."
)


def exchange(
    before: Sequence[Any], after: Sequence[Any], title: str = "", *, used_by: str = ""
) -> Picture:
    """Draw what the ranks held before and after a collective, with a line for each value.

    Parameters
    ----------
    before, after
        One entry per rank, in rank order, as ``lab["x"]`` returns them: a tensor, an array or a
        list of numbers, a list of tensors, or None for a rank that holds nothing.
    title
        What happened in between, such as ``reduce_scatter``.
    used_by
        A line below the boxes.

    Raises
    ------
    UsageError
        If the ranks are not as many before as after, or their boxes do not fit a page.

    Examples
    --------
    >>> before, after = [[1, 2], [30, 40]], [[31], [42]]
    >>> print(labkit.figures.exchange(before, after, "reduce_scatter").text.partition("A line")[0])
    reduce_scatter
    rank 0: [1 2] → [31]
    rank 1: [30 40] → [42]
    <BLANKLINE>
    """
    (picture,) = _cards({title: (before, after)}, {title: used_by}, HOW_TO_READ)
    return picture


def atlas(calls: Mapping[str, States], *, used_by: Mapping[str, str] | None = None) -> Gallery:
    """Draw several collectives on one sheet, each as ``exchange`` does.

    The sheet has two columns on a wide page and one on a phone.

    Parameters
    ----------
    calls
        By the name of a call, what the ranks held before it and after it.
    used_by
        By the same names, a line below; a name may be missing.

    Examples
    --------
    >>> calls = {"broadcast": ([[7], [0]], [[7], [7]]), "all_reduce": ([[1], [2]], [[3], [3]])}
    >>> print(labkit.figures.atlas(calls, used_by={"broadcast": "weights"}).text)
    broadcast
    rank 0: [7] → [7]
    rank 1: [0] → [7]
    weights
    <BLANKLINE>
    all_reduce
    rank 0: [1] → [3]
    rank 1: [2] → [3]
    """
    return Gallery(_cards(calls, used_by or {}, ""))


def _cards(
    calls: Mapping[str, States], used_by: Mapping[str, str], how_to_read: str
) -> list[Picture]:
    """Return a picture for each call, all of the same size."""
    if not calls:
        raise UsageError("calls is empty: give at least one call to draw")
    held = {
        name: ([pieces(entry) for entry in before], [pieces(entry) for entry in after])
        for name, (before, after) in calls.items()
    }
    for name, (old, new) in held.items():
        if not len(old) == len(new) > 0:
            raise UsageError(f"{name!r} has {len(old)} ranks before it and {len(new)} after it")
    rows = [row for columns in held.values() for column in columns for row in column]
    most = max(len(values(row)) for row in rows)
    texts = [number(value) for row in rows for value in values(row)]
    box = max([NARROWEST, *(text_width(word, SIZE) + 0.02 for word in texts)])
    ranks = max(len(old) for old, _ in held.values())
    wide = LABEL + ranks * (max(most * box, 0.5) + GAP)
    if wide > MAX_WIDTH - 2 * MARGIN:
        size = f"{wide + 2 * MARGIN:.1f} inches wide, and a page has {MAX_WIDTH:g}"
        raise UsageError(f"{most} numbers on each of {ranks} ranks: their boxes would be {size}")
    pictures = []
    for name, (old, new) in held.items():
        note = used_by.get(name, "")
        card = _Card((wide, box), name, note, high=any(used_by.values()))
        card.draw(old, new)
        lines = [
            f"rank {rank}: {text(a)} → {text(b)}"
            for rank, (a, b) in enumerate(zip(old, new, strict=True))
        ]
        words = "\n".join(filter(None, [name, *lines, note]))
        pictures.append(Picture(card.sheet.figure, words, how_to_read))
    return pictures


class _Card:
    """One collective: the ranks beside each other, before above after."""

    def __init__(self, size: tuple[float, float], title: str, note: str, *, high: bool) -> None:
        self.wide, self.box = size
        self.shift = 0.0 if title else -0.2
        self.above = BEFORE + self.shift
        self.below = self.above + HIGH + BETWEEN
        bottom = self.below + HIGH + (FOOT + 0.1 if high else 0.0)
        self.sheet = Sheet(self.wide, bottom)
        self.sheet.words((0, 0.08), title, ha="left", family="monospace", weight="bold",
                         size=LABEL_SIZE)  # fmt: skip
        self.sheet.words((0, self.below + HIGH + FOOT), note, ha="left", size=NOTE_SIZE)

    def draw(self, before: Sequence[Held], after: Sequence[Held]) -> None:
        """Draw boxes and lines."""
        self.share = (self.wide - LABEL) / len(before)
        moves = trace(before, after, [range(len(before))])
        for name, y in (("before", self.above), ("after", self.below)):
            self.sheet.words((0, y + HIGH / 2), name, ha="left", size=NOTE_SIZE, style="italic",
                             colour=SOFT_INK)  # fmt: skip
        for rank, (old, new) in enumerate(zip(before, after, strict=True)):
            middle = LABEL + (rank + 0.5) * self.share
            self.sheet.words((middle, HEADS + self.shift), f"rank {rank}", weight="bold",
                             size=NOTE_SIZE, colour=ink_of(rank_colour(rank)))  # fmt: skip
            self._boxes(rank, old, self.above, [rank] * len(values(old)))
            self._boxes(rank, new, self.below, moves.owners[rank])
        for (row, place), (target, spot) in links(before, after, moves.owners):
            kept = row == target and moves.owners[target][spot] != TOGETHER
            self.sheet.axes.plot(
                [self._middle(row, place, len(values(before[row]))),
                 self._middle(target, spot, len(values(after[target])))],
                [self.above + HIGH, self.below], color=rank_colour(row), linewidth=1.3,
                linestyle=(0, (2, 1.5)) if kept else "-", solid_capstyle="butt", zorder=2,
            )  # fmt: skip

    def _middle(self, rank: int, place: int, count: int) -> float:
        """Return the middle of a box: those of a rank stand around the middle of its column."""
        return LABEL + (rank + 0.5) * self.share + (place + 0.5 - count / 2) * self.box

    def _boxes(self, rank: int, held: Held, y: float, owners: Sequence[Any]) -> None:
        numbers = values(held)
        if not numbers:
            self.sheet.words((self._middle(rank, 0, 1), y + HIGH / 2), "–", colour=SOFT_INK)
        for place, (value, owner) in enumerate(zip(numbers, owners, strict=True)):
            x = self._middle(rank, place, len(numbers))
            colour = ANYBODYS if owner is None else COMBINED
            if isinstance(owner, int):
                colour = rank_colour(owner)
            self.sheet.box((x - self.box / 2 + 0.01, y), self.box - 0.02, HIGH, colour, above=3)
            self.sheet.words((x, y + HIGH / 2), number(value), on=colour, weight="bold", size=SIZE,
                             va="center_baseline")  # fmt: skip
