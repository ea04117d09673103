"""Add up stretches of time: lists of (start, stop) in any unit."""

from __future__ import annotations

from collections.abc import Iterable

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
