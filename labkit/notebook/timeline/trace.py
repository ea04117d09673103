"""Write a timeline for Perfetto, in the Trace Event Format.

Google's description of the format:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ...wire.recording import COMMUNICATION, WORK, Recording, Span
from .merge import rows

#: Chrome's names for colours; Perfetto chooses its own, by name.
_COLOURS = {
    "data loading": "yellow",
    "forward": "thread_state_runnable",
    "backward": "thread_state_running",
    "optimizer": "rail_animation",
    "communication": "terrible",
    "waiting": "grey",
    "blocked": "white",
}
#: Tracks; torch's own are its threads' numbers, which are larger, and a GPU's streams.
_WORK_TRACK, _TALK_TRACK = 1, 100


def trace(
    spans: Sequence[Span], recordings: Sequence[Recording], zero: int, *, compress: bool
) -> bytes:
    """Return the content of a file with the trace of all ranks, as JSON."""
    content = {"traceEvents": list(events(spans, recordings, zero)), "displayTimeUnit": "ms"}
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    return gzip.compress(text, mtime=0) if compress else text


def events(
    spans: Sequence[Span], recordings: Sequence[Recording], zero: int
) -> Iterator[dict[str, Any]]:
    """Yield the trace's events: a process for each rank, with tracks for computing, for
    communication (as many as run at once) and for torch's own events, as torch exports them."""
    row_of = rows(spans)
    for recording in recordings:
        rank = recording.rank
        yield _meta(rank, 0, "process_name", name=f"rank {rank}")
        yield _meta(rank, 0, "process_sort_index", sort_index=rank)
        mine = [s for s in spans if s.rank == rank]
        yield from _track(rank, _WORK_TRACK, "computing")
        yield from (_slice(s, _WORK_TRACK) for s in mine if s.kind in (*WORK, "blocked"))
        # slices of one track must lie in one another or apart, so what overlaps gets another
        numbered = [(s, row_of[s.number]) for s in mine if s.number is not None]
        for row in sorted({row for _, row in numbered}):
            name = "communication" if row == 0 else f"communication {row + 1}"
            yield from _track(rank, _TALK_TRACK + row, name)
        yield from (_slice(s, _TALK_TRACK + row) for s, row in numbered)
        yield from _torch(recording, zero)


def _torch(recording: Recording, zero: int) -> Iterator[dict[str, Any]]:
    """Yield what torch exported, without its communication, which has tracks of its own."""
    if not recording.torch:
        return
    trace = json.loads(gzip.decompress(recording.torch))
    shift = (trace["baseTimeNanoseconds"] + recording.offset - zero) / 1e3
    for event in trace["traceEvents"]:
        name = event["name"]
        if name == "thread_name" and isinstance(event["pid"], int):
            yield _meta(recording.rank, event["tid"], name, name=f"torch: {event['args']['name']}")
        elif event["ph"] == "X" and event["cat"] != "Trace" and not COMMUNICATION.match(name):
            yield {**event, "cat": "torch", "pid": recording.rank, "ts": event["ts"] + shift}


def _track(rank: int, row: int, name: str) -> Iterator[dict[str, Any]]:
    yield _meta(rank, row, "thread_name", name=name)
    yield _meta(rank, row, "thread_sort_index", sort_index=row)


def _meta(rank: int, row: int, what: str, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "pid": rank, "tid": row, "name": what, "args": args}


def _slice(span: Span, row: int) -> dict[str, Any]:
    args: dict[str, Any] = {"kind": span.kind}
    if span.number is not None:
        args["number"] = span.number
    if span.bytes is not None:
        args["bytes"] = span.bytes
    if span.group:
        args["ranks"] = list(span.group)
    name = span.kind
    if span.kind == "communication":
        name = f"{span.name} {span.number}"
    elif span.name:
        name += f": {span.name}"
    return {
        "ph": "X", "cat": span.kind, "name": name, "cname": _COLOURS[span.kind],
        "pid": span.rank, "tid": row, "ts": span.start * 1e6, "dur": span.seconds * 1e6,
        "args": args,
    }  # fmt: skip
