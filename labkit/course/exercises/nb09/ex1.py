"""Exercise 09-1: say how many rows of a batch each device gets from DataParallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When, would_give

#: (rows, devices): the toy's two batches on 2 and on 8 devices, and one that is told by none.
BATCHES = ((30, 2), (10, 2), (30, 8), (10, 8), (7, 4))


def trial(answer: Callable[[int, int], Any], here: Here) -> list[Any]:
    return [_whole(answer(rows, devices)) for rows, devices in BATCHES]


def _whole(split: Any) -> Any:
    """Return a list, with its floats as text: 15.0 is no number of rows."""
    if not isinstance(split, list):
        return split
    return [repr(item) if isinstance(item, float) else item for item in split]


def expected() -> list[list[int]]:
    """Let torch cut a tensor of that many rows."""
    return [[len(piece) for piece in torch.empty(rows).chunk(k)] for rows, k in BATCHES]


def _splits(play: Callable[[int, int], list[int]]) -> When:
    """Return the predicate of a mistake that gives ``play(rows, devices)``."""

    return would_give(lambda n: [play(*batch) for batch in BATCHES])


def _rounded_down(rows: int, devices: int) -> list[int]:
    size = rows // devices
    return [size] * (devices - 1) + [rows - size * (devices - 1)]


def _even(rows: int, devices: int) -> list[int]:
    return [len(piece) for piece in torch.empty(rows).tensor_split(devices)]


def _with_idle(rows: int, devices: int) -> list[int]:
    used = [len(piece) for piece in torch.empty(rows).chunk(devices)]
    return used + [0] * (devices - len(used))


EXERCISE = Exercise(
    id="09-1",
    title="Who gets how many?",
    answer="rows_per_device",
    trial=trial,
    expected=expected,
    entries=tuple(f"rows_per_device({rows}, {devices})" for rows, devices in BATCHES),
    where="notebook",
    mistakes=(
        Mistake(
            "The list contains floats, such as 15.0. Numbers of rows are whole numbers: divide "
            "with //.",
            when=lambda yours, expected, n: any(
                isinstance(size, str) for split in yours for size in split
            ),
            shown_by={"floats": edit("min(size, rows - start)", "min(size, rows - start) / 1")},
        ),
        Mistake(
            "You round down and give the rest to the last device. DP rounds up, so the last "
            "device gets fewer rows than the others, not more.",
            when=_splits(_rounded_down),
            shown_by={
                "rounds down": body("""
                    size = rows // devices
                    return [size] * (devices - 1) + [rows - size * (devices - 1)]
                """),
            },
        ),
        Mistake(
            "You split evenly, as tensor_split does. DP splits with chunk: full pieces first, "
            "and the last piece is what is left.",
            when=_splits(_even),
            shown_by={
                "deals evenly": body(
                    "return [rows // devices + (i < rows % devices) for i in range(devices)]"
                )
            },
        ),
        Mistake(
            "The list contains devices without rows. DP does not call those at all: leave them "
            "out.",
            when=_splits(_with_idle),
            shown_by={
                "lists idle devices": body("""
                    size = -(-rows // devices)
                    return [max(0, min(size, rows - i * size)) for i in range(devices)]
                """),
            },
        ),
        Mistake(
            "There are more pieces than devices: the size of a piece is rows / devices, rounded "
            "up.",
            when=lambda yours, expected, n: any(
                len(split) > k for split, (_, k) in zip(yours, BATCHES, strict=True)
            ),
            shown_by={
                "too many pieces": edit("size = -(-rows // devices)", "size = rows // devices")
            },
        ),
        Mistake(
            "The numbers do not add up to the rows of the batch: the last piece has only the "
            "rows that are left.",
            when=lambda yours, expected, n: any(
                sum(split) != rows for split, (rows, _) in zip(yours, BATCHES, strict=True)
            ),
            shown_by={"all pieces full": edit("min(size, rows - start)", "size")},
        ),
    ),
    another=body("""
        size, split = (rows + devices - 1) // devices, []
        while rows > 0:
            split.append(min(size, rows))
            rows -= size
        return split
    """),
    hints=(
        "How large is the first piece? All others but the last have the same size.",
        "A piece has -(-rows // devices) rows. Pieces begin at row 0, size, 2 * size, … as long "
        "as there are rows.",
        "range(0, rows, size) gives the rows at which pieces begin. A piece that begins at start "
        "has size rows, but no more than are left from there.",
    ),
)
