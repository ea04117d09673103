"""Lay out values as rows of boxes that fit a page, with numbers that fit their boxes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .values import MAX_VALUES, number, values

#: Between two tensors of a rank, in boxes.
PIECE_GAP = 0.3
#: A box's sides in inches.
WIDEST = 0.5
TALLEST = 0.44
LOWEST = 0.24
#: Height of all boxes below each other that a figure should not need more than, in inches.
ROOM_HEIGHT = 4.6
#: Font sizes to try, in points.
SIZES = (10.0, 9.0, 8.0, 7.0)
#: Widths of bold characters in ems, on the safe side.
NARROW, WIDE = 0.42, 0.71
NARROW_CHARACTERS = ".-"


@dataclass(frozen=True)
class Box:
    """A value and where it is drawn: its left upper corner, counted in boxes."""

    x: float
    y: float
    value: float | int | bool


@dataclass(frozen=True)
class Block:
    """The boxes of what one rank holds."""

    boxes: list[Box]
    width: float
    height: float


@dataclass(frozen=True)
class Layout:
    """Boxes for every rank in two columns, and sizes that fit them all."""

    columns: list[list[Block]]
    #: Size of a box in inches, and of its number in points.
    box: tuple[float, float]
    font: float

    def width(self, column: int) -> float:
        """Return how many boxes wide a column is; a dash for nothing needs one too."""
        return max([1.0, *(block.width for block in self.columns[column])])

    def height(self, row: int) -> float:
        """Return how many boxes high a row is."""
        return max([1.0, *(column[row].height for column in self.columns)])


def lay_out(columns: Sequence[Sequence[list[np.ndarray]]], room: float) -> Layout:
    """Find the largest font, and then the fewest lines, with which two columns fit.

    Parameters
    ----------
    columns
        What each rank held before, and after.
    room
        Width for both columns together, in inches.
    """
    texts = [number(v) for column in columns for held in column for v in values(held)]
    for limit, font in _choices():
        layout = Layout([[_block(held, limit) for held in column] for column in columns], (0, 0), 0)
        boxes = layout.width(0) + layout.width(1)
        need = max([0.24, *(text_width(text, font) + 0.1 for text in texts)])
        if boxes * need <= room:
            break
    wide = max(need, min(WIDEST, room / boxes))
    lines = sum(layout.height(row) for row in range(len(columns[0])))
    high = min(TALLEST, max(LOWEST, ROOM_HEIGHT / lines))
    return Layout(layout.columns, (wide, high), font)


def _choices() -> Iterator[tuple[float, float]]:
    """Yield boxes a line and font sizes, best first: small print before broken lines."""
    for limit in (math.inf, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1):
        for font in SIZES:
            yield limit, font


def _block(held: list[np.ndarray], limit: float) -> Block:
    """Set tensors beside each other, in as few lines as ``limit`` boxes a line allow, and those
    about equally long."""
    block = _flow(held, limit)
    for shorter in range(min(int(min(limit, MAX_VALUES)), len(block.boxes)) - 1, 0, -1):
        tighter = _flow(held, shorter)
        if limit == math.inf or tighter.height > block.height:
            break
        block = tighter
    return block


def _flow(held: list[np.ndarray], limit: float) -> Block:
    """Set tensors beside each other, in lines of at most ``limit`` boxes."""
    boxes: list[Box] = []
    x = y = high = width = 0.0
    on_line = 0
    for piece in held:
        step = int(min(limit, max(1, piece.shape[-1])))
        lines = [
            row[i : i + step] for row in np.atleast_2d(piece) for i in range(0, len(row), step)
        ]
        wide = max((len(line) for line in lines), default=0)
        if boxes and on_line + wide > limit:
            x, y, high, on_line = 0.0, y + high, 0.0, 0
        elif boxes:
            x += PIECE_GAP
        for i, line in enumerate(lines):
            boxes += [Box(x + j, y + i, value) for j, value in enumerate(values([line]))]
        x, high, on_line = x + wide, max(high, len(lines)), on_line + wide
        width = max(width, x)
    return Block(boxes, width, y + high)


def text_width(text: str, font: float) -> float:
    """Return how wide bold text is at most, in inches; ``font`` is in points."""
    return sum(NARROW if c in NARROW_CHARACTERS else WIDE for c in text) * font / 72
