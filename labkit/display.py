"""Show what ranks printed, returned and raised: in rank order, equal outputs once."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .running import Outcome

#: Seconds after which a cell says what it waits for, and between two such looks.
NOTICE_SECONDS = 3.0
#: Set to 0 where nobody looks on: what comes and goes would stay in a stored notebook.
LIVE = "LABKIT_LIVE"
#: ANSI colours of single ranks, repeated from rank 6 on; every theme has its own shade of them.
COLOURS = (34, 35, 36, 32, 33, 94)


def label(ranks: Sequence[int]) -> str:
    """Name some ranks: ``rank 2``, ``ranks 0–3``, ``ranks 0, 2–3``."""
    parts = []
    ranks = sorted(ranks)
    start = 0
    for i in range(1, len(ranks) + 1):
        if i == len(ranks) or ranks[i] != ranks[i - 1] + 1:
            first, last = ranks[start], ranks[i - 1]
            parts.append(str(first) if first == last else f"{first}–{last}")
            start = i
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(parts)}"


def how_to_replace(ranks: Sequence[int]) -> str:
    """Say how to get fresh processes for some ranks."""
    return f"lab.restart(ranks={list(ranks)}) replaces {'it' if len(ranks) == 1 else 'them'}"


def fold(texts: Mapping[int, str]) -> list[tuple[list[int], str]]:
    """Join ranks with equal texts; the groups are in the order of their first rank."""
    groups: dict[str, list[int]] = {}
    for rank in sorted(texts):
        groups.setdefault(texts[rank], []).append(rank)
    return [(ranks, text) for text, ranks in groups.items()]


def red(text: str) -> str:
    """Colour a text as an error."""
    return f"\x1b[31m{text}\x1b[0m"


def coloured_label(ranks: Sequence[int]) -> str:
    """Name some ranks in bold; a single one in its own colour."""
    colour = f";{COLOURS[ranks[0] % len(COLOURS)]}" if len(ranks) == 1 else ""
    return f"\x1b[1{colour}m{label(ranks)}\x1b[0m"


def block(ranks: Sequence[int], text: str) -> str:
    """Put the label before a text: on its line if it has only one, else above it."""
    lines = text.rstrip("\n").split("\n")
    if len(lines) == 1:
        return f"{coloured_label(ranks)}: {lines[0]}\n"
    return "\n".join([f"{coloured_label(ranks)}:", *(f"  {line}" for line in lines)]) + "\n"


def show(outcomes: Sequence[Outcome], *, results: bool = True) -> None:
    """Write what the ranks printed and displayed, then their results."""
    for stream, target in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        texts = {o.rank: getattr(o, stream) for o in outcomes if getattr(o, stream)}
        text = "".join(block(ranks, text) for ranks, text in fold(texts))
        if text:
            target.write(text)
            target.flush()
    for position in range(max((len(o.displays) for o in outcomes), default=0)):
        shown = {o.rank: o.displays[position] for o in outcomes if position < len(o.displays)}
        _show_bundles(shown)
    if results:
        _show_bundles({o.rank: o.result for o in outcomes if o.result})


def _show_bundles(bundles: Mapping[int, dict[str, Any]]) -> None:
    """Show one mime bundle a rank; plain text goes with its label, the rest below it."""
    keyed = {rank: json.dumps(data, sort_keys=True) for rank, data in bundles.items()}
    for ranks, text in fold(keyed):
        data = json.loads(text)
        if set(data) == {"text/plain"}:
            sys.stdout.write(block(ranks, data["text/plain"]))
        else:
            sys.stdout.write(f"{coloured_label(ranks)}:\n")
            sys.stdout.flush()
            _publish(data)
    sys.stdout.flush()


def _publish(data: dict[str, Any]) -> None:
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is not None:
        display(data, raw=True)
    else:
        sys.stdout.write(data.get("text/plain", f"<{next(iter(data))}>") + "\n")


def error_texts(errors: Mapping[int, tuple[str, str, list[str]]]) -> tuple[str, list[str]]:
    """Fold errors: one summary, one line an error, and one block of lines an error.

    ``errors`` has (name, message, formatted lines) by rank.
    """
    keyed = {rank: json.dumps([name, message, lines]) for rank, (name, message, lines)
             in errors.items()}  # fmt: skip
    summary, blocks = [], []
    for ranks, text in fold(keyed):
        name, message, lines = json.loads(text)
        summary.append(f"{label(ranks)}: {name}" + (f": {message}" if message else ""))
        head, *rest = lines or [f"{name}: {message}"]
        title, _, tail = head.partition(":")
        head = f"{red(title)}:{tail}" if tail else red(title)
        blocks.append("\n".join([f"{coloured_label(ranks)}: {head}", *rest]))
    return "\n".join(summary), blocks


class Notice:
    """A line in a cell's output that says what its ranks wait for, and goes when they end.

    For cells whose output is all ours: what else was in it would go too.
    """

    def __init__(self) -> None:
        self._due = time.monotonic() + NOTICE_SECONDS
        self._text = ""

    def offer(self, make: Callable[[], str]) -> None:
        """Show what ``make()`` returns, if it is time for that."""
        if time.monotonic() < self._due or os.environ.get(LIVE) == "0":
            return
        text = make()
        if text != self._text:
            self._clear()
            sys.stdout.write(text)
            sys.stdout.flush()
            self._text = text
        self._due = time.monotonic() + NOTICE_SECONDS

    def clear(self) -> None:
        """Take the line away."""
        if self._text:
            self._clear()

    @staticmethod
    def _clear() -> None:
        from IPython.display import clear_output

        clear_output(wait=False)
