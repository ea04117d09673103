"""Where a rank stands, written by a signal: also while C code holds its interpreter.

Nothing of such a rank's Python runs: not the thread of its control channel either. What the
standard library's ``faulthandler`` writes needs no interpreter. A line of the rank's own between
two stacks says that its Python has seen an interrupt. The last stack may be that of a crash.
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
#: Begins what faulthandler writes of a crash.
CRASH = "Fatal Python error: "
#: The signals after which it writes; a process that the rank has forked writes there, too.
CRASHES = frozenset[int](
    {signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL}
)

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


def read_crash(path: str) -> list[Frame]:
    """Read where a rank crashed, innermost frame first; nothing if it did not, or in a thread that
    is none of Python's."""
    _, begin, crash = _text(path).rpartition(CRASH)
    return _frames(crash) if begin else []


def read(path: str) -> tuple[list[Frame], bool]:
    """Read what a rank has written since its last request began.

    Returns
    -------
    frames
        The last stack, innermost frame first; none if none was written.
    seen
        Whether its Python has seen an interrupt.
    """
    text = _text(path)
    return _frames(text[text.rfind("(most recent call first)") :]), SEEN in text


def _text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _frames(text: str) -> list[Frame]:
    return [Frame(file, int(line), name) for file, line, name in _FRAME.findall(text)]
