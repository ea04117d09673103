"""Open a debugger where a cell calls ``breakpoint()`` or ``%debug``: IPython's, for cells.

IPython's own does not know the names of cells, stops between two statements of a cell in what
runs them, goes on with the cell after the stop button, and takes SIGINT for itself.
"""

from __future__ import annotations

import pdb
import sys
from typing import Any

from . import ipython_internals, user_input

#: The debugger that was opened last; its trace ends with the cell.
_last: Any = None


def install(shell: Any) -> None:
    """Make ``breakpoint()``, ``pdb.set_trace()`` and ``%debug`` open this debugger."""
    if not ipython_internals.is_on("debugger"):
        return
    # breakpoint() looks it up there, unless PYTHONBREAKPOINT names another one.
    pdb.set_trace = set_trace
    ipython_internals.use_debugger(shell, _open)


def _open() -> Any:
    """Make a debugger."""
    global _last
    from .debugger_internals import Debugger  # IPython's takes its time to import

    _last = Debugger()
    return _last


def set_trace(*, header: str | None = None, **named: Any) -> None:
    """Open the debugger in the frame that calls this."""
    user_input.check("breakpoint()")
    opened = _open()
    if header is not None:
        opened.message(header)
    opened.set_trace(sys._getframe().f_back, **named)


def end() -> None:
    """Trace no more: the cell has ended, and the next one is not to be stopped in."""
    global _last
    if _last is not None:
        _last.over = True
        _last = None
        sys.settrace(None)
