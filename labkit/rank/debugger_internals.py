"""Be IPython's debugger, for cells. Imported when one is first opened."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from IPython.core.debugger import Pdb

from ..base.errors import LabError
from ..wire import python_threads
from . import tracebacks, user_input

#: Whether Python's debugger stops at the line that opens it, not at the next one: the last
#: statement of a cell has none.
STOPS_AT_ONCE = sys.version_info >= (3, 13)


class DebuggerQuit(LabError):
    """Say that the user has left the debugger, which ends the cell on this rank."""


def is_users(frame: FrameType) -> bool:
    """Return whether a frame runs code of the user's: of a cell, a function or a file of theirs."""
    file = frame.f_code.co_filename
    return tracebacks.is_cell(file) or not (file.startswith("<") or python_threads.package(file))


def _is_top(frame: FrameType) -> bool:
    """Return whether a frame is a statement at the top of a cell: IPython runs one by one."""
    return frame.f_code.co_name == "<module>" and tracebacks.is_cell(frame.f_code.co_filename)


class Debugger(Pdb):
    """IPython's debugger, in a cell of a rank."""

    over = False  # its cell has ended
    stopped = False  # by the stop button

    def __init__(self) -> None:
        # SIGINT is the stop button here, no command of the debugger's.
        super().__init__(nosigint=True)

    def canonic(self, filename: str) -> str:
        """Leave the name of a cell as it is: it is no path."""
        is_cell = tracebacks.is_cell(filename)
        return filename if is_cell else str(super().canonic(filename))

    def set_trace(self, frame: FrameType | None = None, **named: Any) -> None:
        """Stop in a frame, at the line that it is in."""
        super().set_trace(frame, **named)
        if STOPS_AT_ONCE or frame is None:
            return
        sys.settrace(None)
        self.interaction(frame, None)
        if frame.f_trace is not None:  # it is to stop again
            sys.settrace(self.trace_dispatch)

    def stop_here(self, frame: FrameType) -> bool:
        """Return whether to stop in a frame: never in what runs the statements of a cell."""
        if self.over or not any(map(is_users, python_threads.frames(frame))):
            return False
        return bool(super().stop_here(frame))

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        """Stop where a function begins; a statement of a cell begins at its line."""
        if not _is_top(frame):
            super().user_call(frame, argument_list)

    def user_return(self, frame: FrameType, return_value: Any) -> None:
        """Stop where a function returns; not at the end of a statement of a cell."""
        if not _is_top(frame):
            super().user_return(frame, return_value)

    def cmdloop(self, intro: Any = None) -> None:
        """Read and obey commands."""
        try:
            super().cmdloop(intro)
        except KeyboardInterrupt:  # IPython would go on with the cell
            self.stopped = True

    def interaction(self, frame: FrameType | None, tb_or_exc: Any) -> None:
        """Let the user look round, at a line of a cell or (without ``frame``) at an error.

        Raises
        ------
        DebuggerQuit
            If they left it with ``q``.
        KeyboardInterrupt
            If they pressed stop.
        """
        user_input.check("breakpoint()" if frame is not None else "%debug")
        super().interaction(frame, tb_or_exc)
        if self.stopped:
            sys.settrace(None)
            raise KeyboardInterrupt
        if self.quitting and frame is not None:
            sys.settrace(None)
            raise DebuggerQuit("the debugger was left with q, which ends the cell here.")

    def hidden_frames(self, stack: list[tuple[FrameType, int]]) -> list[Any]:
        """Return which frames ``where`` and ``up`` leave out: also all that calls the cell."""
        hidden: list[Any] = super().hidden_frames(stack)
        first = next((i for i, (frame, _) in enumerate(stack) if is_users(frame)), 0)
        return [True if i < first else h for i, h in enumerate(hidden)]
