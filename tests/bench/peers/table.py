"""Show the comparison: a table in the terminal, the same in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import HORIZONTALS
from rich.markup import escape
from rich.table import Table

from .measure import LOOKS, SAY_SECONDS, middle
from .notebook_row import NOTEBOOK, notebook_row
from .processes import off_loopback
from .result import Result
from .words import count, failed, first_line, milliseconds, shorten


def heads(sizes: Sequence[int]) -> list[str]:
    """Return the columns' heads."""
    ranks = " and ".join(map(str, sizes))
    return [
        "",
        f"start to the first `all_reduce`, {ranks} ranks",
        f"an empty cell or call, {ranks} ranks",
        "rank 1 skips an `all_reduce`",
        f"{LOOKS[0]:g} s after the kernel or script was killed",
        "listening sockets of four idle ranks; of these not on loopback",
    ]


def row(result: Result, sizes: Sequence[int]) -> list[str]:
    """Return a peer's cells as text."""
    if "install" in result.errors:
        return [result.peer.label, first_line(result.errors["install"])]
    return [
        result.peer.label,
        start(result, sizes),
        call(result, sizes),
        skipped(result),
        left(result),
        listens(result),
    ]


def start(result: Result, sizes: Sequence[int]) -> str:
    """Return how long a start takes with each number of ranks."""
    taken = [(ranks, middle(result.starts(ranks))) for ranks in sizes]
    return ", ".join(
        failed(result, f"{ranks} ranks") if seconds is None else f"{seconds:.1f} s"
        for ranks, seconds in taken
    )


def call(result: Result, sizes: Sequence[int]) -> str:
    """Return how long an empty cell takes with each number of ranks."""
    if not result.peer.calls:
        return "a new run"
    taken = [(ranks, middle(result.calls(ranks))) for ranks in sizes]
    again = "" if result.peer.stays else "a new launch: "
    return again + ", ".join(
        failed(result, f"{ranks} ranks") if seconds is None else milliseconds(seconds)
        for ranks, seconds in taken
    )


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
    return f"after {seconds:.1f} s: “{shorten(result.words(what))}”"


def left(result: Result) -> str:
    """Return what is left after the kernel was killed."""
    if result.left is None:
        return failed(result, "left")
    first, last = (result.left.after[f"{look:g}"] for look in LOOKS)
    if result.left.seconds is not None and result.left.seconds <= LOOKS[0]:
        return f"nothing (after {result.left.seconds:.1f} s)"
    text = f"{count(first['processes'], 'process')}, {count(first['listeners'], 'listener')}"
    if 0 < last["processes"] == last["started since"]:
        return f"{text}, started since by the Jupyter server"
    if first == last:
        return f"{text}; the same after {LOOKS[1]:g} s"
    return f"{text}; after {LOOKS[1]:g} s {last['processes']} and {last['listeners']}"


def listens(result: Result) -> str:
    """Return on how many addresses the peer listens while four ranks are idle."""
    if result.left is None:
        return "–"
    return f"{len(result.left.listeners)}, {len(off_loopback(result.left.listeners))}"


def terminal(results: Sequence[Result], sizes: Sequence[int]) -> Table:
    """Make the table for a terminal."""
    out = Table(title="Ways to run ranks, measured here", box=HORIZONTALS, show_lines=True)
    for head in heads(sizes):
        out.add_column(head.replace("`", ""), overflow="fold")
    for result in results:
        out.add_row(*map(escape, row(result, sizes)))
    return out


def terminal_notebook(results: Sequence[Result]) -> Table:
    """Make the second table for a terminal."""
    out = Table(title="In a notebook, two ranks", box=HORIZONTALS, show_lines=True)
    for head in NOTEBOOK:
        out.add_column(head.replace("`", ""), overflow="fold")
    for result in results:
        out.add_row(*map(escape, notebook_row(result)))
    return out


def markdown(results: Sequence[Result], sizes: Sequence[int]) -> str:
    """Return both tables in Markdown, and under them how each peer was used."""
    lines = [
        *rows_of(heads(sizes), [row(result, sizes) for result in results]),
        "",
        *rows_of(NOTEBOOK, [notebook_row(result) for result in results]),
        "",
    ]
    for result in results:
        found = ", ".join(f"{name} {number}" for name, number in result.versions.items())
        lines.append(f"- {result.peer.label} ({found or 'not installed'}): `{result.peer.way}`")
    return "\n".join(lines) + "\n"


def rows_of(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [plain(cell) for cell in row]
        cells += [""] * (len(columns) - len(cells))
        lines.append("| " + " | ".join([f"**{cells[0]}**", *cells[1:]]) + " |")
    return lines


def plain(cell: str) -> str:
    """Write a text so that a Markdown table holds it."""
    return cell.replace("|", "\\|").replace("\n", " ")
