"""Say what a rank did when: as the rank sends it, and as the notebook shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

#: What a span can be. The first four are the main thread's work (of a GPU, where there is one).
#: "communication" is a collective or a message, from the call to its end; "waiting" the part of
#: it in which another rank had not come yet; "blocked" is a main thread that stands still until
#: communication ends.
KINDS = (
    "data loading",
    "forward",
    "backward",
    "optimizer",
    "communication",
    "waiting",
    "blocked",
)
#: The kinds that are work of the main thread.
WORK = KINDS[:4]
#: Ends the name of work that goes on after a GPU had nothing of it to do: no further piece of work.
CONTINUED = " (continued)"
#: Names that torch gives communication in its trace.
COMMUNICATION = re.compile(r"(?:gloo|nccl|mpi|ucc|xccl):(\w+)")


@dataclass(frozen=True)
class Span:
    """Something that a rank did, or waited for.

    ``start`` and ``stop`` are seconds since the first rank began. A communication has a
    ``number``, the same on every rank that took part in it, counted from 1 in the order in which
    they began; the ranks of its ``group``; and ``bytes``, what this rank gave, where torch
    says so.
    """

    rank: int
    kind: str
    name: str
    start: float
    stop: float
    bytes: int | None = None
    number: int | None = None
    group: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        return self.stop - self.start


class Event(NamedTuple):
    """Something that a rank did, in nanoseconds of its own system clock."""

    kind: str
    name: str
    start: int
    stop: int
    bytes: int | None = None
    #: What the other ranks call the same communication: group, members and number; for a message
    #: also who sends, who receives and the tag.
    key: tuple[object, ...] = ()
    group: tuple[int, ...] = ()


@dataclass
class Recording:
    """What one rank recorded, in nanoseconds of its own system clock."""

    rank: int
    start: int  #: when the code began
    stop: int  #: when it ended, or the recording did
    events: list[Event]
    torch: bytes = b""  #: torch's own trace (``export_chrome_trace``), compressed by gzip
    #: Add it to a time of this rank to have the time of the first rank's clock.
    offset: int = 0
    #: How far off the aligned times may be.
    error: int = 0
    notes: list[str] = field(default_factory=list)


# -- lists of (start, stop) in any unit -----------------------------------------------------------

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Join what overlaps: ``[(0, 2), (1, 3)]`` gives ``[(0, 3)]``. Empty ones are left out."""
    joined: list[Interval] = []
    for start, stop in sorted(i for i in intervals if i[1] > i[0]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((start, stop))
    return joined


def common(first: Iterable[Interval], second: Iterable[Interval]) -> list[Interval]:
    """Return the time that is in both: ``[(0, 3)]`` and ``[(2, 5)]`` give ``[(2, 3)]``."""
    ours, theirs = union(first), union(second)
    shared: list[Interval] = []
    i = j = 0
    while i < len(ours) and j < len(theirs):
        start, stop = max(ours[i][0], theirs[j][0]), min(ours[i][1], theirs[j][1])
        if start < stop:
            shared.append((start, stop))
        if ours[i][1] < theirs[j][1]:
            i += 1
        else:
            j += 1
    return shared


def without(first: Iterable[Interval], second: Iterable[Interval]) -> list[Interval]:
    """Return the time that is in the first and not in the second."""
    left: list[Interval] = []
    taken = union(second)
    for start, stop in union(first):
        for begin, end in taken:
            if end <= start or begin >= stop:
                continue
            left.append((start, begin))
            start = max(start, end)
        left.append((start, stop))
    return [i for i in left if i[1] > i[0]]


def length(intervals: Iterable[Interval]) -> float:
    """Return how long all of it lasts, time that several share counted once."""
    return sum(stop - start for start, stop in union(intervals))
