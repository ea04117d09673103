"""Put what the ranks recorded on one clock, and see who waited for whom."""

from __future__ import annotations

from collections.abc import Sequence

from ...base import times
from ...wire.recording import Event, Recording, Span


def merge(recordings: Sequence[Recording]) -> list[Span]:
    """Return the spans of all ranks, in seconds since the first one began, by rank and start.

    What the ranks did together has the same number on each. The part of it in which a rank was
    there and another had not come is a span of kind "waiting" besides.
    """
    zero = begin(recordings)
    aligned = {r.rank: [_shift(e, r) for e in r.events] for r in recordings}
    errors = {r.rank: r.error for r in recordings}
    numbers = _numbers(aligned)
    arrivals: dict[tuple[object, ...], dict[int, int]] = {}
    for rank, events in aligned.items():
        for event in events:
            if event.key:
                arrivals.setdefault(event.key, {})[rank] = event.start
    spans = []
    for rank, events in aligned.items():
        for i, event in enumerate(events):
            number = numbers.get((rank, i))
            spans.append(_span(rank, event, zero, event.kind, event.name, event.stop, number))
            came = arrivals.get(event.key, {}) if event.key else {}
            late = _late(rank, event, came, errors)
            if late is not None:
                name = f"{event.name}: rank {late} had not come"
                spans.append(_span(rank, event, zero, "waiting", name, came[late], number))
    return sorted(spans, key=lambda s: (s.rank, s.start, -s.stop))


def begin(recordings: Sequence[Recording]) -> int:
    """Return when the first rank began, on the clock of all."""
    return min(r.start + r.offset for r in recordings)


def _shift(event: Event, recording: Recording) -> Event:
    """Move an event to the clock of all, and cut off what is outside the recording."""
    start = max(event.start, recording.start) + recording.offset
    stop = min(event.stop, recording.stop) + recording.offset
    return event._replace(start=start, stop=stop)


def _numbers(aligned: dict[int, list[Event]]) -> dict[tuple[int, int], int]:
    """Number what was communicated from 1, in the order in which it first began anywhere."""
    first: dict[object, int] = {}
    owners: dict[tuple[int, int], object] = {}
    for rank, events in aligned.items():
        for i, event in enumerate(events):
            if event.kind == "communication":
                key = event.key or (rank, i)
                owners[rank, i] = key
                first[key] = min(first.get(key, event.start), event.start)
    order = {key: n for n, key in enumerate(sorted(first, key=first.__getitem__), 1)}
    return {owner: order[key] for owner, key in owners.items()}


def _late(rank: int, event: Event, came: dict[int, int], errors: dict[int, int]) -> int | None:
    """Return the rank that this one waited for: the last to come before the end."""
    others = {r: start for r, start in came.items() if r != rank and start <= event.stop}
    if not others:
        return None
    last = max(others, key=others.__getitem__)
    slack = times.LATE_NANOSECONDS + errors[rank] + errors[last]
    return last if others[last] - event.start > slack else None


def _span(
    rank: int, event: Event, zero: int, kind: str, name: str, stop: int, number: int | None
) -> Span:
    return Span(
        rank=rank,
        kind=kind,
        name=name,
        start=(event.start - zero) / 1e9,
        stop=(stop - zero) / 1e9,
        bytes=event.bytes if kind == "communication" else None,
        number=number,
        group=event.group,
    )


def rows(spans: Sequence[Span]) -> dict[int, int]:
    """Give each communication, by its number, the first row in which it overlaps no earlier one
    on any rank: the same row on all of them."""
    stretches: dict[int, dict[int, tuple[float, float]]] = {}
    for span in spans:
        if span.kind == "communication" and span.number is not None:
            stretches.setdefault(span.number, {})[span.rank] = span.start, span.stop
    ends: list[dict[int, float]] = []  # of each row, by rank
    chosen = {}
    for number in sorted(stretches):
        mine = stretches[number]
        free = (
            row
            for row, end in enumerate(ends)
            if all(end.get(rank, start) <= start for rank, (start, _) in mine.items())
        )
        row = next(free, len(ends))
        if row == len(ends):
            ends.append({})
        ends[row].update({rank: stop for rank, (_, stop) in mine.items()})
        chosen[number] = row
    return chosen
