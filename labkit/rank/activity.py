"""Say what runs on this rank: ``calls`` writes it, and what observes the rank reads it."""

from __future__ import annotations

import asyncio

#: True while a function of `lab.run` runs here.
in_call = False
#: True while a cell runs here, also while it awaits something.
in_cell = False
#: The event loop of the main thread, which runs tasks between cells.
loop: asyncio.AbstractEventLoop | None = None


def is_running() -> bool:
    """Return whether a cell or a function of `lab.run` runs."""
    return in_call or in_cell
