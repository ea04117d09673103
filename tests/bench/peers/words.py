"""Write figures and quotations as short as a table's cell needs them."""

from __future__ import annotations

import re

from .result import Result

#: Longest quotation in a cell, in characters.
QUOTED = 120


def failed(result: Result, step: str) -> str:
    """Return why a cell is empty, in a line."""
    return f"failed: {first_line(result.errors[step])}" if step in result.errors else "–"


def first_line(text: str) -> str:
    """Return the first line of an error, and its last, which says most in a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shorten(" … ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else "")


def telling(text: str, pattern: re.Pattern[str]) -> str:
    """Return the last line in which a pattern is found; empty if there is none."""
    found = [line.strip() for line in text.splitlines() if pattern.search(line)]
    return shorten(found[-1]) if found else ""


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
