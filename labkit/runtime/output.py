"""Collect what a rank writes and displays while a request runs there.

ipyparallel's own record keeps the last part of a line that is written over, which is not what a
terminal would show, and joins text again and again.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

from ..launch import ipyparallel_internals
from ..wire.protocol import MESSAGES
from .terminal_text import Screen

STREAMS = ("stdout", "stderr")
#: Characters of output that may wait for Python's collector.
GARBAGE = 8 * 2**20

_collected = 0


class Output:
    """What came from one rank for one request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._screens = {name: Screen() for name in STREAMS}
        #: Mime bundles as ``{"data": …, "metadata": …}``, in order.
        self.displays: list[dict[str, Any]] = []
        self.result: dict[str, Any] | None = None  #: the last expression's
        #: What the rank says of the messages that it has posted, encoded; None: it posted none.
        self.messages: object = None

    def note(self, message: dict[str, Any]) -> None:
        """Take in a message of the engine's output channel. Called in ipyparallel's thread."""
        global _collected
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "stream":
            _collected += len(content["text"])
            with self._lock:
                self._screens[content["name"]].write(content["text"])
        elif kind == "display_data" and MESSAGES in content["data"]:
            self.messages = content["data"][MESSAGES]
        elif kind in ("display_data", "execute_result"):
            _collected += sum(len(v) for v in content["data"].values() if isinstance(v, str))
            bundle = {"data": content["data"], "metadata": content["metadata"]}
            if kind == "display_data":
                self.displays.append(bundle)
            else:
                self.result = bundle

    def text(self, stream: str) -> str:
        """Return what is to be seen of "stdout" or "stderr"."""
        with self._lock:
            return str(self._screens[stream])


def collect(client: Any) -> None:
    """Give every request of an ipyparallel client an :class:`Output`.

    It is attached before the request is sent: later, its first lines could be there already.
    """

    def prepare(future: Any) -> None:
        future.labkit_output = output = Output()
        ipyparallel_internals.on_output(future, output.note)

    ipyparallel_internals.on_new_future(client, prepare)


def tidy() -> None:
    """Free what earlier requests brought, if it is much.

    ipyparallel's futures refer to one another in circles. Python would find them some day, but
    it counts objects, not what they hold.
    """
    global _collected
    if _collected > GARBAGE:
        _collected = 0
        gc.collect()
