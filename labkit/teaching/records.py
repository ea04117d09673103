"""The file in which a sandbox tells what answers gave: records, one after the other.

A record is a line of JSON and so many bytes as it says. The file may hold anything: a learner's
cells can have written it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

#: Bytes of what one answer gave, and of the whole file; characters of a note; records.
MOST, ALL, NOTE, RECORDS = 16 << 20, 256 << 20, 400, 1000
_LINE = 4096


def note(told: Any, text: str) -> None:
    """Write down what went wrong."""
    _write(told, {"note": text}, b"")


def answer(told: Any, name: str, path: Path) -> None:
    """Write down what an answer gave, as its trial has left it in a file; remove that."""
    data = read(path)
    if data is not None:
        path.unlink(missing_ok=True)
        _write(told, {"answer": name}, data)


def _write(told: Any, head: dict[str, str], data: bytes) -> None:
    line = json.dumps({**head, "size": len(data)}).encode() + b"\n"
    rest = memoryview(line + data)
    while rest:
        rest = rest[told.write(rest) :]


def read(path: Path) -> bytes | None:
    """Return the content of a file that a learner may have laid there, None if it is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    with open(file, "rb") as opened:
        data = opened.read(MOST + 1)
    return data if len(data) <= MOST else None


def parse(told: BinaryIO) -> tuple[dict[str, list[bytes]], list[str]]:
    """Return what a file tells: what the answers gave, by exercise, and notes. What cannot be read
    ends it."""
    answers: dict[str, list[bytes]] = {}
    notes: list[str] = []
    for head, data in _records(told):
        if "note" in head:
            notes.append(printable(str(head["note"])))
        else:
            answers.setdefault(str(head["answer"]), []).append(data)
    return answers, notes


def _records(told: BinaryIO) -> Iterator[tuple[dict[str, Any], bytes]]:
    left = ALL
    for _ in range(RECORDS):
        line = told.readline(_LINE)
        try:
            head = json.loads(line)
            size = head["size"]
            if type(size) is not int or not 0 <= size <= min(MOST, left):
                return
            if not {"note", "answer"} & set(head):
                return
        except (ValueError, TypeError, LookupError, RecursionError):
            return
        left -= size
        yield head, told.read(size)


def printable(text: str, most: int = NOTE) -> str:
    """Return a learner's text for a terminal, a page or a file: ``most`` characters at most, and
    no control characters, but for the ends of its lines."""
    shown = "".join(c if c.isprintable() or c == "\n" else "�" for c in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
