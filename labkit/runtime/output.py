"""Collect what a rank writes and displays while a request runs there.

ipyparallel's own record keeps the last part of a line that is written over, which is not what a
terminal would show, and joins text again and again.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import threading
from typing import Any

from ..launch import ipyparallel_internals
from ..wire.asking import INPUT_REQUEST, InputRequest
from ..wire.encoding import ProtocolError, decode
from ..wire.outcome import Bundle, Outcome
from ..wire.protocol import MESSAGES
from .terminal_text import Screen

STREAMS = ("stdout", "stderr")
#: Characters of output that may wait for Python's collector.
GARBAGE = 8 * 2**20

_collected = 0


class Output:
    """What came from one rank for one request, as a notebook's page would hold it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._screens = {name: Screen() for name in STREAMS}
        self._clear_next = False  # all of it goes when the next output comes
        self.displays: list[Bundle] = []  #: in order, each as it was updated last
        self.names: list[str] = []  #: the ``display_id`` of each, "" if it has none
        #: what displays under a name shall be, also earlier cells'
        self.updates: dict[str, Bundle] = {}
        self.result: Bundle | None = None  #: the last expression's
        #: What the rank says of the messages that it has posted, encoded; None: it posted none.
        self.messages: object = None
        self.count = 0  #: of the messages that have come
        #: What the rank asks a person, once it does: made anew by each ``take_asked``.
        self.asked: concurrent.futures.Future[InputRequest] = concurrent.futures.Future()

    def note(self, message: dict[str, Any]) -> None:
        """Take in a message of the engine's output channel. Called in ipyparallel's thread."""
        self.count += 1
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "display_data" and MESSAGES in content["data"]:
            self.messages = content["data"][MESSAGES]
            return
        if kind == "display_data" and INPUT_REQUEST in content["data"]:
            with contextlib.suppress(ProtocolError):
                self._ask(decode(InputRequest, content["data"][INPUT_REQUEST]))
            return
        with self._lock:
            if kind == "stream":
                self._begin()
                _count(content["text"])
                self._screens[content["name"]].write(content["text"])
            elif kind == "clear_output":
                self._clear_next = True
                if not content.get("wait"):
                    self._begin()
            elif kind in ("display_data", "execute_result", "update_display_data"):
                _count(*content["data"].values())
                self._note_bundle(kind, content)

    def _ask(self, asked: InputRequest) -> None:
        with self._lock:
            if self.asked.done():  # the one before was given up
                self.asked = concurrent.futures.Future()
            self.asked.set_result(asked)

    def take_asked(self) -> InputRequest | None:
        """Return what the rank asks, once; None if it has asked nothing since."""
        with self._lock:
            if not self.asked.done():
                return None
            taken, self.asked = self.asked.result(), concurrent.futures.Future()
            return taken

    def _note_bundle(self, kind: str, content: dict[str, Any]) -> None:
        bundle = {"data": content["data"], "metadata": content["metadata"]}
        name = (content.get("transient") or {}).get("display_id") or ""
        if name:  # a new display under a name that is there updates those, too
            self.displays = [
                bundle if named == name else shown
                for shown, named in zip(self.displays, self.names, strict=True)
            ]
            self.updates[name] = bundle
        if kind == "update_display_data":  # is no new output
            return
        self._begin()
        if kind == "display_data":
            self.displays.append(bundle)
            self.names.append(name)
        else:
            self.result = bundle

    def _begin(self) -> None:
        """Clear what is there if that was asked for: an output comes."""
        if self._clear_next:
            self._clear_next = False
            self._screens = {name: Screen() for name in STREAMS}
            self.displays, self.names, self.result = [], [], None

    def text(self, stream: str) -> str:
        """Return what is to be seen of "stdout" or "stderr"."""
        with self._lock:
            return str(self._screens[stream])

    def shown(self) -> str:
        """Return what is to be seen of stdout and, below it, of displays that are text."""
        with self._lock:
            text = str(self._screens["stdout"])
            for part in filter(None, map(_text_of, self.displays)):
                text += ("\n" if text and not text.endswith("\n") else "") + part
        return text

    def outcome(self, rank: int) -> Outcome:
        """Return all of it."""
        stdout, stderr = (self.text(stream) for stream in STREAMS)
        with self._lock:
            shown, updates = list(self.displays), dict(self.updates)
            return Outcome(rank, stdout, stderr, shown, self.result, list(self.names), updates)


def _text_of(bundle: Bundle) -> str:
    """Return the text of a display, "" if it is a picture."""
    data = bundle["data"]
    if any(kind.startswith("image/") for kind in data):
        return ""
    return str(data.get("text/plain", ""))


def _count(*parts: object) -> None:
    """Note how much has come that will be garbage one day."""
    global _collected
    _collected += sum(len(part) for part in parts if isinstance(part, str))


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
