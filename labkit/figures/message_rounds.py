"""Draw an algorithm of messages round by round, and count its rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..base.errors import UsageError
from ..base.rank_names import rank_colour
from .drawings import Sheet
from .picture import Picture
from .style import LINE, NOTE_SIZE, SOFT_INK, TITLE_SIZE, ink_of

#: To which rank a rank sends in a turn, and from which it receives; None: it does not.
Turn = tuple[int | None, int | None]
#: Most ranks and rounds that can be drawn.
MAX_RANKS, MAX_ROUNDS = 16, 16
#: Inches: ranks' names, a round, a rank, the title with the rounds' numbers, below the last rank.
NAMES, WIDEST, ROW, HEAD, FOOT, WIDTH = 0.68, 1.15, 0.36, 0.62, 0.1, 7.2
#: Where in a round a message leaves and arrives.
LEAVES, ARRIVES = 0.12, 0.88

HOW_TO_READ = (
    "A line is a rank, a column a round, an arrow a message in its sender's colour. In a round a "
    "rank sends at most one message and receives at most one."
)


def message_rounds(turns: Sequence[Sequence[Sequence[Any]]], *, title: str = "") -> Picture:
    """Draw who sends to whom in which round, from the turns that the ranks took.

    A rank takes one turn after the other. In a turn it sends a message, receives one, or both at
    the same time, and that takes one round. A message that is received in a turn has been sent in
    the same round or in an earlier one.

    Parameters
    ----------
    turns
        One list per rank, in rank order: ``(to, source, …)`` of each of its turns, with None where
        it does not send or does not receive.
    title
        By default, the number of rounds.

    Examples
    --------
    Two ranks swap, then rank 0 sends to rank 2:

    >>> turns = [[(1, 1), (2, None)], [(0, 0)], [(None, 0)]]
    >>> print(labkit.figures.message_rounds(turns).text.partition("\\nA line")[0])
    2 rounds on 3 ranks
    round 0: 0 to 1, 1 to 0
    round 1: 0 to 2
    """
    n = len(turns)
    if not 2 <= n <= MAX_RANKS:
        raise UsageError(f"a picture shows 2 to {MAX_RANKS} ranks, not {n}")
    sent, count = follow_turns(_pairs(turns)), count_rounds(turns)
    if not 1 <= count <= MAX_ROUNDS:
        raise UsageError(f"the turns take {count} rounds; a picture shows 1 to {MAX_ROUNDS}")
    title = title or f"{count} round{'s' * (count > 1)} on {n} ranks"
    wide = min(WIDEST, (WIDTH - NAMES) / count)
    sheet = Sheet(NAMES + count * wide, HEAD + n * ROW + FOOT)
    sheet.words((0, 0.12), title, ha="left", weight="bold", size=TITLE_SIZE)
    for k in range(count):
        left = NAMES + k * wide
        sheet.words((left + wide / 2, HEAD - 0.16), f"round {k}" if wide > 0.7 else f"{k}",
                    size=NOTE_SIZE, colour=SOFT_INK)  # fmt: skip
        if k % 2 == 0:
            sheet.box((left, HEAD), wide, n * ROW, "#F3F3F3")
    for rank in range(n):
        y = HEAD + (rank + 0.5) * ROW
        sheet.words((NAMES - 0.08, y), f"rank {rank}", ha="right", weight="bold",
                    colour=ink_of(rank_colour(rank)))  # fmt: skip
        sheet.arrow((NAMES, y), (NAMES + count * wide, y), LINE, heads=False, thick=0.8)
    for sender, receiver, leaves, arrives in sent:
        tail = (NAMES + (leaves + LEAVES) * wide, HEAD + (sender + 0.5) * ROW)
        tip = (NAMES + (arrives + ARRIVES) * wide, HEAD + (receiver + 0.5) * ROW)
        sheet.arrow(tail, tip, rank_colour(sender), thick=1.6)
    lines = [title]
    for k in range(count):
        own = [f"{one} to {other}" for one, other, _, arrives in sent if arrives == k]
        lines.append(f"round {k}: {', '.join(own) or 'no message arrives'}")
    return Picture(sheet.figure, "\n".join(lines), HOW_TO_READ)


def count_rounds(turns: Sequence[Sequence[Sequence[Any]]]) -> int:
    """Return how many rounds the turns of all ranks take: the longest path of turns that wait for
    one another.

    Parameters
    ----------
    turns
        As for :func:`message_rounds`.

    Examples
    --------
    In a chain no rank takes more than two turns:

    >>> chain = [[(1, None)], [(None, 0), (2, None)], [(None, 1), (3, None)], [(None, 2)]]
    >>> labkit.figures.count_rounds(chain)
    3
    """
    pairs = _pairs(turns)
    starts = _starts(pairs)
    return max(
        (_end(pairs, starts, rank, len(own) - 1) for rank, own in enumerate(pairs) if own),
        default=0,
    )


def _pairs(turns: Sequence[Sequence[Sequence[Any]]]) -> list[list[Turn]]:
    """Return to whom ranks send and from whom they receive, without what else a turn says."""
    return [[(turn[0], turn[1]) for turn in own] for own in turns]


def follow_turns(turns: Sequence[Sequence[Turn]]) -> list[tuple[int, int, int, int]]:
    """Return (sender, receiver, round in which it leaves, round in which it arrives) of each
    message, in the order of arrival."""
    starts = _starts(turns)
    found = []
    for rank, own in enumerate(turns):
        sources = _numbered([source for _, source in own])
        for k, (_, source) in enumerate(own):
            if source is not None:
                leaves = starts[source][_sends(turns[source], rank)[sources[k]]]
                found.append((source, rank, leaves, max(leaves, starts[rank][k])))
    return sorted(found, key=lambda one: (one[3], one[0], one[1]))


def _starts(turns: Sequence[Sequence[Turn]]) -> list[list[int]]:
    """Return the round in which each rank is ready for each of its turns.

    A turn is over one round after the rank was ready for it and, if it receives in it, one round
    after the sender was ready to send.
    """
    starts: list[list[int]] = [[0] if own else [] for own in turns]
    going = True
    while going:
        going = False
        for rank, own in enumerate(turns):
            while 0 < len(starts[rank]) < len(own):
                end = _end(turns, starts, rank, len(starts[rank]) - 1)
                if end < 0:
                    break
                starts[rank].append(end)
                going = True
    if odd := [rank for rank, own in enumerate(turns) if len(starts[rank]) < len(own)]:
        raise UsageError(f"rank {odd[0]} receives a message that no rank sends")
    return starts


def _end(turns: Sequence[Sequence[Turn]], starts: list[list[int]], rank: int, k: int) -> int:
    """Return when a turn is over, -1 if that is not known yet."""
    source = turns[rank][k][1]
    if source is None:
        return starts[rank][k] + 1
    number = _numbered([one for _, one in turns[rank]])[k]
    sends = _sends(turns[source], rank)
    if number >= len(sends) or sends[number] >= len(starts[source]):
        return -1
    return 1 + max(starts[rank][k], starts[source][sends[number]])


def _sends(own: Sequence[Turn], receiver: int) -> list[int]:
    """Return in which turns a rank sends to another one."""
    return [k for k, (to, _) in enumerate(own) if to == receiver]


def _numbered(peers: Sequence[int | None]) -> list[int]:
    """Return of each item how many equal ones stand before it."""
    seen: defaultdict[int | None, int] = defaultdict(int)
    numbers = []
    for peer in peers:
        numbers.append(seen[peer])
        seen[peer] += 1
    return numbers
