"""Take apart what a rank holds: arrays of plain values, text, and rows of boxes that fit a page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import UsageError

#: Largest number of values of one rank that a picture can show.
MAX_VALUES = 16
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


def pieces(entry: Any) -> list[np.ndarray]:
    """Turn what a rank holds into arrays, one a tensor, each with one or two dimensions.

    Parameters
    ----------
    entry
        A tensor, an array, a number, a list of numbers (one tensor), a list of tensors, or None.
        A tensor of more than two dimensions becomes rows as long as its last one.
    """
    arrays = tensors(entry)
    count = sum(array.size for array in arrays)
    if count > MAX_VALUES:
        raise UsageError(f"a rank holds {count} values; a picture shows at most {MAX_VALUES}")
    return arrays


def tensors(entry: Any) -> list[np.ndarray]:
    """Turn what a rank holds into arrays as ``pieces`` does, however many values there are."""
    if entry is None:
        return []
    if isinstance(entry, list | tuple) and entry and not np.isscalar(entry[0]):
        return [_array(item) for item in entry]
    return [_array(entry)]


def values(arrays: Sequence[np.ndarray]) -> list[float | int | bool]:
    """List every value in the order in which they are drawn."""
    flat = [value for array in arrays for value in array.ravel().tolist()]
    # one NaN for all, so that a set finds it
    return [value if value == value else math.nan for value in flat]


def number(value: float | int | bool) -> str:
    """Write a value in at most nine characters: four digits, whole numbers below 1e6 in full."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int) and abs(value) < 1_000_000:
        return str(value)
    # + 0.0 turns -0 into 0; 1.5e+06 is written 1.5e6
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value + 0.0:.4g}")


def text(arrays: Sequence[np.ndarray]) -> str:
    """Write what a rank holds on one line: ``[1 2] [3 4]``, rows as ``[[1 2] [3 4]]``."""
    return " ".join(_bracketed(array) for array in arrays) if arrays else "–"


def _bracketed(array: np.ndarray) -> str:
    parts = (number(v) for v in array.tolist()) if array.ndim == 1 else map(_bracketed, array)
    return "[" + " ".join(parts) + "]"


def _array(item: Any) -> np.ndarray:
    if hasattr(item, "detach"):
        item = item.detach().cpu()
        # numpy has no bfloat16 and no 8-bit floats
        item = (item.float() if item.is_floating_point() else item).numpy()
    array = np.asarray(item)
    if array.dtype.kind not in "biuf":
        raise UsageError(
            f"a rank holds {_name(item)}: a picture shows tensors and lists of bool, int or float"
        )
    return np.atleast_1d(array) if array.ndim < 2 else array.reshape(-1, array.shape[-1])


def _name(item: Any) -> str:
    kind = getattr(item, "dtype", None) or type(item).__name__
    return f"values of type {kind}"


# -- layout -------------------------------------------------------------------------------------


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
