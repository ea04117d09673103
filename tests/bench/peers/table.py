"""Show the comparison: a table in the terminal, the same in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.box import HORIZONTALS
from rich.markup import escape
from rich.table import Table

from .measure import LOOKS, RANKS, SAY_SECONDS, middle
from .processes import off_loopback
from .result import Result

#: Longest quotation in a cell, in characters.
QUOTED = 120


def heads(sizes: Sequence[int]) -> list[str]:
    """Return the columns' heads."""
    return [
        "",
        *(f"start, {ranks} ranks" for ranks in sizes),
        *(f"empty cell, {ranks} ranks" for ranks in sizes),
        f"a rank skips all_reduce, {RANKS} ranks",
        f"left {LOOKS[0]:g} s after kill -9",
        "listens, of which off loopback",
    ]


def row(result: Result, sizes: Sequence[int]) -> list[str]:
    """Return a peer's cells as text."""
    if "install" in result.errors:
        return [result.peer.label, first_line(result.errors["install"])]
    return [
        result.peer.label,
        *(start(result, ranks) for ranks in sizes),
        *(call(result, ranks) for ranks in sizes),
        skipped(result),
        left(result),
        listens(result),
    ]


def start(result: Result, ranks: int) -> str:
    """Return how long a start takes, and how long processors run for it."""
    seconds, ran = middle(result.starts(ranks)), middle(result.start_processors(ranks))
    if seconds is None or ran is None:
        return failed(result, f"{ranks} ranks")
    return f"{seconds:.1f} s (CPU {ran:.1f} s)"


def call(result: Result, ranks: int) -> str:
    """Return how long an empty cell takes, and how long processors run for it."""
    if not result.peer.calls:
        return "a new run"
    seconds, ran = middle(result.calls(ranks)), middle(result.call_processors(ranks))
    if seconds is None or ran is None:
        return failed(result, f"{ranks} ranks")
    again = "" if result.peer.stays else "a new launch: "
    return f"{again}{milliseconds(seconds)} (CPU {milliseconds(ran)})"


def skipped(result: Result) -> str:
    """Return what is heard of a skipped collective, and when."""
    if "skip" in result.errors or not result.said.get("skip"):
        return failed(result, "skip")
    if result.peer.stays:
        return heard(result, "skip")
    end = failed(result, "skip-end") if "skip-end" in result.errors else heard(result, "skip-end")
    return f"{heard(result, 'skip')}; if rank 1 ends: {end}"


def heard(result: Result, what: str) -> str:
    """Return after how long something was heard, and quote it."""
    seconds = result.heard(what)
    if seconds is None:
        return f"nothing in {SAY_SECONDS:.0f} s"
    return f"{seconds:.1f} s: “{shorten(result.words(what))}”"


def left(result: Result) -> str:
    """Return what is left after the kernel was killed."""
    if result.left is None:
        return failed(result, "left")
    first, last = (result.left.after[f"{look:g}"] for look in LOOKS)
    if result.left.seconds is not None and result.left.seconds <= LOOKS[0]:
        return f"nothing (after {result.left.seconds:.1f} s)"
    text = f"{count(first['processes'], 'process')}, {count(first['listeners'], 'listener')}"
    if first == last:
        return f"{text}; the same after {LOOKS[1]:g} s"
    return f"{text}; after {LOOKS[1]:g} s {last['processes']} and {last['listeners']}"


def listens(result: Result) -> str:
    """Return on how many addresses the peer listens while four ranks are idle."""
    if result.left is None:
        return "–"
    return f"{len(result.left.listeners)}, {len(off_loopback(result.left.listeners))}"


def failed(result: Result, step: str) -> str:
    """Return why a cell is empty, in a line."""
    return f"failed: {first_line(result.errors[step])}" if step in result.errors else "–"


def first_line(text: str) -> str:
    """Return the first line of an error, and its last, which says most in a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shorten(" … ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else "")


def shorten(words: str) -> str:
    """Cut words to a length; without a log line's beginning, a source's place and long numbers."""
    words = re.sub(r"^(\[rank\d+\]: |[IWEF]\d{4} \S+ \d+ \S+\] )", "", words)
    words = re.sub(r"\[/\S+\] ", "", words)
    words = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "…", words)
    return words if len(words) <= QUOTED else words[: QUOTED - 1].rstrip() + "…"


def milliseconds(seconds: float) -> str:
    """Write a short time in milliseconds, with two digits that count."""
    thousand = seconds * 1000
    return f"{thousand:.0f} ms" if thousand >= 10 else f"{thousand:.1f} ms"


def count(number: int, noun: str) -> str:
    """Write a number with its noun."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"


def terminal(results: Sequence[Result], sizes: Sequence[int]) -> Table:
    """Make the table for a terminal."""
    out = Table(title="Ways to run ranks, measured here", box=HORIZONTALS, show_lines=True)
    for head in heads(sizes):
        out.add_column(head, overflow="fold")
    for result in results:
        out.add_row(*map(escape, row(result, sizes)))
    return out


def markdown(results: Sequence[Result], sizes: Sequence[int]) -> str:
    """Return the table in Markdown, and under it how each peer was used."""
    columns = heads(sizes)
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for result in results:
        cells = [plain(cell) for cell in row(result, sizes)]
        cells += [""] * (len(columns) - len(cells))
        lines.append("| " + " | ".join([f"**{cells[0]}**", *cells[1:]]) + " |")
    lines.append("")
    for result in results:
        found = ", ".join(f"{name} {number}" for name, number in result.versions.items())
        lines.append(f"- {result.peer.label} ({found or 'not installed'}): `{result.peer.way}`")
    return "\n".join(lines) + "\n"


def plain(cell: str) -> str:
    """Write a text so that a Markdown table holds it."""
    return cell.replace("|", "\\|").replace("\n", " ")
