"""Exercise 10-4: find the pieces of old shards that a rank of another world size needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

#: (rows, ranks that saved, ranks that load)
CASES = ((10, 4, 2), (10, 2, 4), (8, 4, 3), (3, 4, 2), (7, 1, 3))
Piece = tuple[int, int, int]


def _block(rows: int, n: int, rank: int) -> tuple[int, int]:
    size = -(-rows // n)
    return min(rank * size, rows), min((rank + 1) * size, rows)


def _find(rows: int, old: int, new: int, rank: int) -> list[Piece]:
    """Look up every single row, and join neighbours."""
    owners = [(f, i) for f in range(old) for i in range(len(range(*_block(rows, old, f))))]
    found: list[Piece] = []
    for file, own in owners[slice(*_block(rows, new, rank))]:
        if found and found[-1][0] == file:
            found[-1] = (file, found[-1][1], own + 1)
        else:
            found.append((file, own, own + 1))
    return found


def _globally(rows: int, old: int, new: int, rank: int) -> list[Piece]:
    starts = {file: _block(rows, old, file)[0] for file in range(old)}
    return [(f, a + starts[f], b + starts[f]) for f, a, b in _find(rows, old, new, rank)]


def _lengths(rows: int, old: int, new: int, rank: int) -> list[Piece]:
    return [(f, a, b - a) for f, a, b in _find(rows, old, new, rank)]


def _whole(rows: int, old: int, new: int, rank: int) -> list[Piece]:
    sizes = {f: len(range(*_block(rows, old, f))) for f in range(old)}
    return [(f, 0, sizes[f]) for f, _, _ in _find(rows, old, new, rank)]


def _table(find: Callable[..., Any]) -> dict[str, Any]:
    return {
        f"{rows} rows, {old} to {new}": [
            [tuple(map(int, piece)) for piece in find(rows, old, new, rank)] for rank in range(new)
        ]
        for rows, old, new in CASES
    }


def trial(answer: Callable[..., Any], here: Here) -> dict[str, Any]:
    """Ask for every rank of a few cases."""
    return _table(answer)


def expected() -> dict[str, Any]:
    """Look up row by row."""
    return _table(_find)


def _finds(find: Callable[..., Any]) -> When:
    return lambda yours, expected, n: yours == _table(find)


def _has_empty(yours: Any, expected: Any, n: int) -> bool:
    if not isinstance(yours, dict):
        return False
    full = {
        case: [[p for p in found if p[1] < p[2]] for found in ranks]
        for case, ranks in yours.items()
    }
    return bool(full == expected)


EXERCISE = Exercise(
    id="10-4",
    title="Find the pieces",
    answer="pieces",
    trial=trial,
    expected=expected,
    where="notebook",
    mistakes=(
        Mistake(
            "Your first and stop count from the beginning of the whole tensor. They have to "
            "count from the beginning of the file's own block: subtract where it begins.",
            when=_finds(_globally),
            shown_by={"rows of the whole tensor": edit("a - begin, b - begin", "a, b")},
        ),
        Mistake(
            "The third number is the end of a piece, not its length.",
            when=_finds(_lengths),
            shown_by={"lengths": edit("b - begin", "b - a")},
        ),
        Mistake(
            "You read whole files. Take only the rows that this rank needs.",
            when=_finds(_whole),
            shown_by={
                "whole files": edit(
                    """
                    a, b = max(first, begin), min(stop, end)
                    if a < b:
                        found.append((file, a - begin, b - begin))
                    """,
                    """
                    if max(first, begin) < min(stop, end):
                        found.append((file, 0, end - begin))
                    """,
                ),
            },
        ),
        Mistake(
            "Some pieces are empty: a piece counts only if first < stop.",
            when=_has_empty,
            shown_by={
                "empty pieces": edit(
                    """
                    if a < b:
                        found.append((file, a - begin, b - begin))
                    """,
                    "found.append((file, a - begin, b - begin))",
                ),
            },
        ),
    ),
    another=body("""
        size = -(-rows // old)
        wanted = list(range(*block(rows, new, rank)))
        found = []
        for file in range(old):
            own = [row - file * size for row in wanted if row // size == file]
            if own:
                found.append((file, own[0], own[-1] + 1))
        return found
    """),
    hints=(
        "Compare two blocks: the rows that this rank needs, and the rows of each file.",
        "The overlap of two blocks begins at the larger of their beginnings and ends at the "
        "smaller of their ends.",
        "max(first, begin) and min(stop, end) bound the overlap with a file's block. Keep it if "
        "it is not empty, and count from begin.",
    ),
)
