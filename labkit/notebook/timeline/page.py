"""Write a timeline as a page for a browser, to zoom into: one file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from ...base.rank_names import rank_colour
from ...figures.style import WORK, format_bytes, ink_of, text_on
from ...wire.recording import WORK as COMPUTING
from ...wire.recording import Span
from .merge import rows

TEMPLATE = Path(__file__).with_suffix(".html")
#: What is later lies on top of what is in the same row.
ORDER = (*COMPUTING, "blocked", "communication", "waiting")


def page(spans: Sequence[Span], seconds: Mapping[int, float], words: str) -> bytes:
    """Return the page.

    Parameters
    ----------
    spans
        What the ranks did.
    seconds
        How long each rank recorded.
    words
        The timeline in words, title first, for screen readers.
    """
    row_of = rows(spans)
    lanes = {rank: lane for lane, rank in enumerate(seconds)}
    # a main thread that stands still looks as a communication that waits
    looks = {kind: "waiting" if kind == "blocked" else kind for kind in ORDER}
    used = {looks[span.kind] for span in spans}
    kinds = {kind: i for i, kind in enumerate(kind for kind in WORK if kind in used)}
    waits = {(span.rank, span.number): span.stop for span in spans if span.kind == "waiting"}
    data: dict[str, Any] = {
        "end": max([1e-6, *seconds.values(), *(span.stop for span in spans)]),
        "rows": 2 + max(row_of.values(), default=0),
        "ranks": [{"name": f"rank {r}", "colour": ink_of(rank_colour(r))} for r in seconds],
        "kinds": [
            {"name": kind, "colour": look.colour, "ink": text_on(look.colour),
             "hatched": bool(look.hatch)}
            for kind, look in WORK.items() if kind in kinds
        ],
        "spans": [
            [lanes[span.rank], 0 if span.number is None else 1 + row_of[span.number],
             kinds[looks[span.kind]], _words(span), round(span.start, 9), round(span.stop, 9),
             round(waits.get((span.rank, span.number), span.start), 9)]
            for span in sorted(spans, key=lambda span: ORDER.index(span.kind))
        ],
    }  # fmt: skip
    # no "<": what a browser reads as the end of the script is in no name
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    told = {"title": escape(words.splitlines()[0]), "alt": escape(words), "data": text}
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(told).encode()


def _words(span: Span) -> str:
    """Name a span: ``forward: Net``, ``all_reduce 3, 400 B``."""
    if span.kind == "communication":
        size = f", {format_bytes(span.bytes)}" if span.bytes is not None else ""
        return f"{span.name} {span.number}{size}"
    what = "waits for communication" if span.kind == "blocked" else span.kind
    return f"{what}: {span.name}" if span.name else what
