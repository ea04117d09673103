"""Work out who sent what to whom, from what the ranks held before and after they talked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .values import values

#: The owner of a value that ranks made together, such as a sum.
COMBINED = "combined"
#: The row that a value comes from, COMBINED, or None where nobody can tell.
Owner = int | str | None
#: What one rank holds: its tensors.
Held = list[np.ndarray]


@dataclass
class Moves:
    """What happened: rows of a picture count from 0."""

    #: For each row, where each of its values after comes from.
    owners: list[list[Owner]]
    #: (source, target) rows; a row that kept a value points to itself, and is drawn without arrow.
    arrows: set[tuple[int, int]] = field(default_factory=set)
    #: Rows that brought something, rows that left with the same combination of it.
    meetings: list[tuple[list[int], list[int]]] = field(default_factory=list)


def trace(
    before: Sequence[Held], after: Sequence[Held], groups: Sequence[Sequence[int]],
    reduced: bool | None = None,
) -> Moves:  # fmt: skip
    """Find the source of every value that a row holds after a collective.

    A tensor comes from the one row that held an equal tensor; else a value from the one row that
    held an equal value; else, where a row ends with one part for each row of its group, part i
    comes from row i; else the row kept its own. Values that are new were made together by all
    rows of the group; then so was everything in the rows that changed.

    Parameters
    ----------
    before, after
        What each row holds.
    groups
        Rows that talked among each other; a row outside of all groups kept what it had.
    reduced
        Whether values were combined; None to judge by whether any value is new.
    """
    moves = Moves([[row] * len(values(held)) for row, held in enumerate(after)])
    alone = set(range(len(before))) - {row for group in groups for row in group}
    for group in groups:
        changed = [row for row in group if after[row] and not _same(before[row], after[row])]
        held = {value for row in group for value in values(before[row])}
        new = any(value not in held for row in changed for value in values(after[row]))
        if reduced if reduced is not None else new:
            _combine(moves, before, after, group, changed, sure=bool(reduced))
        else:
            for row in changed:
                moves.owners[row] = _sources(before, after[row], row, group)
    for row, owners in enumerate(moves.owners):
        kept_nothing = row in alone and not before[row]
        moves.arrows |= {(o, row) for o in owners if isinstance(o, int) and not kept_nothing}
    return moves


def follow(
    before: Sequence[Held], after: Sequence[Held], messages: Sequence[tuple[int, int]]
) -> Moves:
    """Return where values come from when the messages are known: (source, target) rows.

    A tensor comes from a row that sent to this one and held an equal tensor. Otherwise a value
    that is where it was before was kept; else it comes from such a row that held it, else from the
    row itself if it held it elsewhere; else it was made of both.
    """
    moves = Moves([], arrows=set(messages))
    for row, held in enumerate(after):
        senders = [source for source, target in messages if target == row]
        known = {r: set(values(before[r])) for r in [*senders, row]}
        stays = dict(enumerate(values(before[row])))
        changed = not _same(before[row], held)
        owners: list[Owner] = []
        for i, piece in enumerate(held):
            kept = changed and i < len(before[row]) and _equal(before[row][i], piece)
            whole = [s for s in senders if any(_equal(piece, other) for other in before[s])]
            for value in values([piece]):
                if whole and not kept:
                    owners.append(whole[0])
                elif changed and stays.get(len(owners)) == value:
                    owners.append(row)
                else:
                    holder = (r for r in known if value in known[r])
                    owners.append(next(holder, COMBINED))
        moves.owners.append(owners)
        if row in owners:
            moves.arrows.add((row, row))
    return moves


def _combine(
    moves: Moves, before: Sequence[Held], after: Sequence[Held], group: Sequence[int],
    changed: list[int], *, sure: bool,
) -> None:  # fmt: skip
    """Record which rows left with a combination; rows with equal ones share a meeting."""
    takers = list(changed)
    if sure:
        # a row whose own value is the result took part too: the largest, or a sum with zeros
        results = [after[row] for row in changed]
        takers = [
            row
            for row in group
            if after[row] and (not changed or any(_same(after[row], r) for r in results))
        ]
    givers = [row for row in group if before[row]]
    for row in takers:
        moves.owners[row] = [COMBINED] * len(moves.owners[row])
        for _, targets in moves.meetings:
            if targets[0] in group and _same(after[targets[0]], after[row]):
                targets.append(row)
                break
        else:
            moves.meetings.append((givers, [row]))


def _sources(before: Sequence[Held], held: Held, row: int, group: Sequence[int]) -> list[Owner]:
    """Return the source of each value that a row got without any combining."""
    owners: list[Owner] = []
    total = len(values(held))
    part = total // len(group) if total % len(group) == 0 else 0
    for piece in held:
        equal = [r for r in group if any(_equal(piece, other) for other in before[r])]
        for value in values([piece]):
            expected = group[len(owners) // part] if part else None
            holders = [r for r in group if value in values(before[r])]
            if len(equal) == 1:
                owners.append(equal[0])
            elif len(holders) == 1:
                owners.append(holders[0])
            elif expected in holders:
                owners.append(expected)
            else:
                owners.append(row if row in holders else None)
    return owners


def _same(one: Held, other: Held) -> bool:
    return len(one) == len(other) and all(map(_equal, one, other))


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=True)
