"""Draw the tensors that ranks held before and after they talked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..base.errors import UsageError
from .canvas import Canvas
from .moves import follow, trace
from .picture import Picture
from .values import pieces, text

#: Most ranks in one picture.
MAX_RANKS = 32
#: What is no message in a picture of a collective, whose messages nobody records.
DOT = "The dot is the reduction, not a place: no rank is the centre."
TRACED = "Arrows are traced from equal values; the messages themselves are not recorded."


def before_after(
    before: Sequence[Any],
    after: Sequence[Any],
    title: str = "",
    *,
    ranks: Sequence[int] | None = None,
    messages: Iterable[Sequence[Any]] | None = None,
    groups: Iterable[Iterable[int]] | None = None,
    reduced: bool | None = None,
    how_to_read: str = "",
    heads: tuple[str, str] = ("before", "after"),
) -> Picture:
    """Draw the tensors that the ranks held before and after they talked, and who sent to whom.

    A box after has the colour of the rank that held its value before, with an arrow from there if
    that is another rank; a combined value is dark grey, and lines show which ranks' values met;
    light grey is a value that several ranks held before. Where more than 24 lines would cross, one
    bar stands for them: every rank to every rank.

    Parameters
    ----------
    before, after
        One entry a rank, in rank order, as ``lab["x"]`` returns them: a tensor, an array or a
        list of numbers, a list of tensors (drawn with gaps), or None for a rank that holds
        nothing. At most 16 values a rank and 32 ranks. A matrix is drawn in rows.
    title
        What happened in between, such as ``dist.all_reduce(x)``.
    ranks
        Which ranks these are, if not 0, 1, 2, …
    messages
        For point to point: what was sent, as ``lab.messages()`` returns it, or pairs (source,
        target) of ranks. Arrows are exactly these; none if nothing was sent.
    groups
        For collectives in subgroups: the ranks of each. Ranks in no group kept what they had.
    reduced
        Whether the call combined values (True: sum, maximum) or moved them (False). By default,
        values that nobody held before say that it did; on two ranks that hold 0 and 1, a sum
        looks like a broadcast, so say it there.
    how_to_read
        One sentence under the picture. Without messages, others follow it that say what the dot
        and the arrows of a collective are.
    heads
        What stands above the two columns, such as the names of two tensors.

    Examples
    --------
    >>> picture = labkit.figures.before_after(
    ...     [[1], [2], [3], [4]], [[10]] * 4, "dist.all_reduce(x)"
    ... )
    >>> print(picture.text)
    dist.all_reduce(x)
    rank 0: [1] → [10]
    rank 1: [2] → [10]
    rank 2: [3] → [10]
    rank 3: [4] → [10]
    The dot is the reduction, not a place: no rank is the centre.
    """
    names = _names(before, after, ranks)
    rows = [[pieces(entry) for entry in column] for column in (before, after)]
    pairs = _messages(messages, names)
    if pairs is not None:
        if groups is not None or reduced is not None:
            raise UsageError("messages say all: give no groups and no reduced with them")
        moves = follow(rows[0], rows[1], pairs)
    else:
        moves = trace(rows[0], rows[1], _groups(groups, names), reduced)
    lines = [title] if title else []
    for name, old, new in zip(names, *rows, strict=True):
        lines.append(f"rank {name}: {text(old)} → {text(new)}")
    canvas = Canvas(rows, names, title, heads)
    canvas.draw(moves)
    notes = [how_to_read] if how_to_read else []
    if moves.meetings:
        notes.append(DOT)
    if pairs is None and any(source != target for source, target in moves.arrows):
        notes.append(TRACED)
    return Picture(canvas.figure, "\n".join(lines), " ".join(notes))


def _names(before: Sequence[Any], after: Sequence[Any], ranks: Sequence[int] | None) -> list[int]:
    """Return the rank of each row."""
    for name, column in (("before", before), ("after", after)):
        if not hasattr(column, "__len__") or getattr(column, "ndim", 1) == 0:
            raise UsageError(f"{name} is one value: give a list with one entry for each rank")
    if len(before) != len(after):
        counts = f"before has {len(before)}, after has {len(after)}"
        raise UsageError(f"Each rank has an entry in both: {counts}.")
    if not 1 <= len(before) <= MAX_RANKS:
        raise UsageError(f"a picture shows 1 to {MAX_RANKS} ranks, not {len(before)}")
    names = list(range(len(before))) if ranks is None else [int(rank) for rank in ranks]
    if len(names) != len(before):
        counts = f"{len(before)}, not {len(names)}"
        raise UsageError(f"Each rank of before has its number in ranks: {counts}.")
    if len(set(names)) != len(names) or min(names) < 0:
        raise UsageError(f"ranks is {names}: give different ranks, each 0 or more")
    return names


def _messages(
    messages: Iterable[Sequence[Any]] | None, names: Sequence[int]
) -> list[tuple[int, int]] | None:
    """Return messages as pairs of rows."""
    if messages is None:
        return None
    pairs = []
    for message in messages:
        if not hasattr(message, "__len__") or len(message) < 2:
            raise UsageError(f"messages holds {message!r}: give pairs (source, target)")
        source, target = (_row(rank, names, "messages") for rank in message[:2])
        pairs.append((source, target))
    return pairs


def _groups(groups: Iterable[Iterable[int]] | None, names: Sequence[int]) -> list[list[int]]:
    """Return groups as lists of rows; no groups are one of all ranks."""
    if groups is None:
        return [list(range(len(names)))]
    rows = [[_row(rank, names, "groups") for rank in group] for group in groups]
    members = [row for group in rows for row in group]
    if len(set(members)) != len(members):
        twice = next(names[row] for row in members if members.count(row) > 1)
        raise UsageError(f"groups has rank {twice} twice: a rank belongs to at most one group")
    return rows


def _row(rank: int, names: Sequence[int], where: str) -> int:
    if rank not in names:
        shown = ", ".join(map(str, names))
        raise UsageError(f"{where} names rank {rank}, but the picture has the ranks {shown}")
    return list(names).index(rank)
