"""Write what a notebook's reader gets of a peer as a row of the second table."""

from __future__ import annotations

import re

from .notebook import Seen
from .result import Result
from .words import count, failed, telling

#: Which line says what became of a picture, and of a breakpoint.
PICTURE = re.compile(r"<\S*Image object>")
DEBUGGER = re.compile(r"bdb|pdb|debugger", re.IGNORECASE)
#: The heads of the second table.
NOTEBOOK = ["", "two ranks display a picture", "`breakpoint()` on rank 1", "JupyterLab's debugger"]


def notebook_row(result: Result) -> list[str]:
    """Return what a notebook's reader gets of a peer, as text."""
    if result.peer.cells is None:
        return [result.peer.label, "not measured: it runs scripts, not cells"]
    if "install" in result.errors or result.seen is None:
        return [result.peer.label, failed(result, "notebook")]
    return [result.peer.label, pictures(result.seen), prompt(result.seen), debugger(result.seen)]


def pictures(seen: Seen) -> str:
    """Return how many of two pictures came, and in which form."""
    if seen.pictures:
        return f"{count(seen.pictures, 'picture')}, {', '.join(seen.carriers)}"
    quoted = telling(seen.displayed, PICTURE)
    return f"no picture: “{quoted}”" if quoted else "nothing"


def prompt(seen: Seen) -> str:
    """Return whether a breakpoint led to a debugger's prompt, and what was said if it did not."""
    if seen.prompts:
        does = "answers" if seen.answered else "does not answer"
        return f"prompt “{seen.prompts[0].strip()}”, {does}"
    quoted = telling(seen.stopped, DEBUGGER)
    return f"no prompt: “{quoted}”" if quoted else "no prompt, nothing said"


def debugger(seen: Seen) -> str:
    """Return which ranks JupyterLab's debugger stopped."""
    if not seen.debugger:
        return "not measured: it attaches to the kernel, which is no rank"
    return f"stops {count(len(seen.debugger), 'rank')}, reads {', '.join(seen.debugger.values())}"
