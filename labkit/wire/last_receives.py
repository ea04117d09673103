"""Keep the newest receives of a rank in a file, where they outlive its process.

Gloo aborts a rank whose tensor is too small for the message that comes. What it was about to
receive is gone with it, but for this.
"""

from __future__ import annotations

import json
import mmap
import os
from dataclasses import astuple, dataclass
from pathlib import Path

#: Bytes of a receive in the file, and how many are kept.
SLOT, SLOTS = 512, 32


@dataclass(frozen=True)
class Receive:
    """A receive that was posted, or was about to be."""

    peer: int  #: rank in the world; -1: any
    tag: int
    number: int  #: from 1, among those of this peer and tag in its group
    elements: int
    type: str  #: "float32"
    where: str = ""  #: "In[7], line 3"
    line: str = ""  #: "dist.recv(x, 0)"


class Book:
    """The file, as the rank writes it: no system call per receive."""

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.truncate(fd, SLOT * SLOTS)
            self._memory = mmap.mmap(fd, SLOT * SLOTS)
        finally:
            os.close(fd)
        self._count = 0

    def note(self, receive: Receive) -> None:
        """Write one down, in the place of the oldest."""
        text = json.dumps([self._count, *astuple(receive)]).encode()
        if len(text) < SLOT:
            begin = self._count % SLOTS * SLOT
            self._memory[begin : begin + SLOT] = text.ljust(SLOT)
            self._count += 1


def path_of(folder: Path | str, pid: int) -> str:
    """Name the file of a process."""
    return os.path.join(folder, f"{pid}.receives")


def read(path: str) -> list[Receive]:
    """Read what a rank has written down, newest first; nothing if there is no such file."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return []
    found = []
    for begin in range(0, len(content), SLOT):
        try:
            found.append(json.loads(content[begin : begin + SLOT]))
        except ValueError:  # nothing there yet, or cut off in the middle
            continue
    return [Receive(*values) for _, *values in sorted(found, reverse=True)]
