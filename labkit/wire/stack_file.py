"""Where a rank stands, written by a signal: also while C code holds its interpreter.

Nothing of such a rank's Python runs: not the thread of its control channel either. What the
standard library's ``faulthandler`` writes needs no interpreter. A line of the rank's own between
two stacks says that its Python has seen an interrupt.
"""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

#: Makes a rank write where it stands; None: this system has no such signal.
SIGNAL: int | None = signal.SIGRTMIN + 11 if hasattr(signal, "SIGRTMIN") else None
#: Written by the handler of SIGINT.
SEEN = "an interrupt was seen\n"

_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


@dataclass(frozen=True)
class Frame:
    """A line that a stack stands in."""

    filename: str
    line: int
    function: str


def path_of(folder: Path | str, pid: int) -> str:
    """Name the file of a process."""
    return os.path.join(folder, f"{pid}.stack")


def read(path: str) -> tuple[list[Frame], bool]:
    """Read what a rank has written since its last request began.

    Returns
    -------
    frames
        The last stack, innermost frame first; none if none was written.
    seen
        Whether its Python has seen an interrupt.
    """
    try:
        text = Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return [], False
    last = text[text.rfind("(most recent call first)") :]
    frames = [Frame(file, int(line), name) for file, line, name in _FRAME.findall(last)]
    return frames, SEEN in text
