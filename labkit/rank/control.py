"""Answer the notebook's questions while this rank's main thread is busy.

The control channel of an engine has a thread of its own: it answers as long as that thread gets
the interpreter, which a rank that waits inside a collective leaves free.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from . import calls, cells


def install(kernel: Any) -> None:
    """Let this engine answer ``labkit_survey`` requests on its control channel."""

    def survey(stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        kernel.session.send(stream, "labkit_reply", look(), parent=parent, ident=ident)

    kernel.control_handlers["labkit_survey"] = survey


def look() -> dict[str, Any]:
    """Say what the main thread does: idle, or busy at which line of which cell."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    place = cells.innermost(frame)
    busy = place is not None or calls.running
    where, line = place or ("", "")
    return {"status": "ok", "busy": busy, "where": where, "line": line}
