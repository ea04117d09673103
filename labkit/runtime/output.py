"""Collect what ranks write and display, as a notebook's page would hold it.

ipyparallel's own record keeps the last part of a line that is written over, which is not what a
terminal would show, and joins text again and again.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import re
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..launch import ipyparallel_internals
from ..wire.encoding import ProtocolError, decode
from ..wire.protocol import MESSAGES
from ..wire.requests import INPUT_REQUEST, InputRequest
from ..wire.state import Bundle, Outcome

STREAMS = ("stdout", "stderr")
#: Characters of output that may wait for Python's collector.
GARBAGE = 8 * 2**20

#: Requests of which it is known who got them: what an engine writes has the label of its last one.
NOTED = 5_000

#: Pictures of which it is known that they came: ranks that draw the same are rarely further apart.
RECENT = 32

_collected = 0


@dataclass(frozen=True)
class Pictures:
    """The pictures of a rank to look at now: those that move, and the newest display of all."""

    bundles: Sequence[Bundle]
    #: Stand for all that came lately, the newest last: another rank may be a picture ahead.
    recent: Sequence[int] = field(default=(), compare=False)


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
        self._moving: set[str] = set()  # names that were updated: their pictures move
        self._recent: deque[int] = deque(maxlen=RECENT)
        self.result: Bundle | None = None  #: the last expression's
        #: What the rank says of the messages that it has posted, encoded; None: it posted none.
        self.messages: object = None
        self.count = 0  #: of the messages that have come
        #: What the rank asks the user, once it does: made anew by each ``take_asked``.
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
        if picture := picture_of(bundle):
            self._recent.append(hash(bundle["data"][picture]))
        name = (content.get("transient") or {}).get("display_id") or ""
        if name:  # a new display under a name that is there updates those, too
            self.displays = [
                bundle if named == name else shown
                for shown, named in zip(self.displays, self.names, strict=True)
            ]
            self.updates[name] = bundle
        if kind == "update_display_data":  # is no new output
            self._moving.add(name)
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

    def pictures(self) -> Pictures:
        """Return what there is to look at now."""
        with self._lock:
            found = [i for i, bundle in enumerate(self.displays) if picture_of(bundle)]
            newest = [i for i in found if i == found[-1] or self.names[i] in self._moving]
            return Pictures([self.displays[i] for i in newest], tuple(self._recent))

    def outcome(self, rank: int) -> Outcome:
        """Return all of it."""
        stdout, stderr = (self.text(stream) for stream in STREAMS)
        with self._lock:
            shown, updates = list(self.displays), dict(self.updates)
            return Outcome(rank, stdout, stderr, shown, self.result, list(self.names), updates)


def picture_of(bundle: Bundle) -> str:
    """Return the kind of the picture that a display holds, "" if it holds none."""
    return next((kind for kind in bundle["data"] if kind.startswith("image/")), "")


def _text_of(bundle: Bundle) -> str:
    """Return the text of a display, "" if it is a picture."""
    return "" if picture_of(bundle) else str(bundle["data"].get("text/plain", ""))


def _count(*parts: object) -> None:
    """Record how much has come that will be garbage one day."""
    global _collected
    _collected += sum(len(part) for part in parts if isinstance(part, str))


def collect(client: Any) -> None:
    """Give every request of an ipyparallel client an :class:`Output`, before it is sent."""

    def prepare(future: Any) -> None:
        future.labkit_output = output = Output()
        ipyparallel_internals.on_output(future, output.note)

    ipyparallel_internals.on_new_future(client, prepare)


def tidy() -> None:
    """Free what earlier requests brought, if it is much: ipyparallel's futures refer to one
    another in circles, and Python counts objects, not what they hold."""
    global _collected
    if _collected > GARBAGE:
        _collected = 0
        gc.collect()


class LateOutput:
    """What the engines of a client have written that no cell has shown, as their threads do.

    A rank labels what it writes with the request that it has got last. That request may be over,
    which ipyparallel notes without telling anybody, or one of labkit's own, whose output nobody
    shows, or a cell whose last output was given up.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._receivers: dict[str, int] = {}  # request -> who got it, the latest ones
        self._kept: dict[str, Any] = {}  # request -> its reply's future
        self._seen: dict[tuple[str, str, bool], int] = {}  # characters that were shown already

    def note(self, engine: int, reply: Any) -> None:
        """Record that an engine has got a request, of which this is the reply's future."""
        self._receivers[reply.msg_id] = engine
        if len(self._receivers) > NOTED:
            del self._receivers[next(iter(self._receivers))]

    def keep(self, reply: Any, shown: Mapping[str, str] | None = None) -> None:
        """Count what comes for a request as late from now on.

        ``shown`` is the text of each stream that a cell shows; ignored if it is kept already.
        """
        if reply.msg_id not in self._kept:
            self._kept[reply.msg_id] = reply
            for stream, text in (shown or {}).items():
                self._seen[reply.msg_id, stream, True] = len(text)

    def take(self) -> dict[int, dict[str, str]]:
        """Return what has come since the last call: engine -> stream -> text."""
        found: dict[int, dict[str, str]] = {}
        for request, reply in list(self._kept.items()):
            over = reply.done() and reply.output.done()  # asked first: more may come meanwhile
            texts = {stream: reply.labkit_output.text(stream) for stream in STREAMS}
            self._add(found, request, texts, True)
            if over:
                self._forget(request, True)
                del self._kept[request]
        for request, told in list(self._client.metadata.items()):
            # The request is over if its own record has gone. ("submitted" is a date, by mistake.)
            if isinstance(told, dict) and told["submitted"] is None:
                texts = {stream: told[stream] or "" for stream in STREAMS}
                if not self._add(found, request, texts, False):
                    self._client.metadata.pop(request, None)
                    self._forget(request, False)
        return found

    def _add(
        self, found: dict[int, dict[str, str]], request: str, texts: Mapping[str, str], kept: bool
    ) -> bool:
        """Add what is new of the texts of a request; return whether there was anything."""
        more = False
        for stream, text in texts.items():
            seen = self._seen.get((request, stream, kept), 0)
            self._seen[request, stream, kept] = len(text)
            new = text[seen if len(text) >= seen else 0 :]  # a bar has written over itself
            more = more or bool(new)
            if new and request in self._receivers:
                streams = found.setdefault(self._receivers[request], dict.fromkeys(STREAMS, ""))
                streams[stream] += settle(new)
        return more

    def _forget(self, request: str, kept: bool) -> None:
        for stream in STREAMS:
            self._seen.pop((request, stream, kept), None)


# -- as a terminal shows it ---------------------------------------------------------------------

#: What moves the cursor or erases; colours (which end in m) only dress the next character.
MOVES = re.compile(r"[\r\b]|\x1b\[[0-9;?]*[A-HJKSTfhl]")
#: An escape sequence whose rest is still to come.
_CUT = re.compile(r"\x1b(?:\[[0-9;?]*)?$")
_TOKENS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(.)", re.DOTALL)
#: Lines above the end that the cursor may go back to: nested progress bars are few.
REACH = 12


class Screen:
    """A text that grows, as it looks on a screen without end.

    Knows carriage return, backspace, cursor up, down and forward, and erasing in a line: what
    tqdm and its like use. Colours stay with the characters that they dress.
    """

    def __init__(self) -> None:
        self._above: list[str] = []  # lines that nothing can change any more, with their ends
        self._open = ""  # raw text of the rest
        self._cut = ""
        self._new: list[str] = []  # what was written since
        self._length = 0  # of it

    def write(self, text: str) -> None:
        """Write at the cursor."""
        self._new.append(text)
        self._length += len(text)
        if self._length > len(self._open):  # else a long line would be read with each of its dots
            self._take()

    def _take(self) -> None:
        """Read what is new."""
        text = "".join(self._new)
        self._new, self._length = [], 0
        raw = (self._open + self._cut + text).replace("\r\n", "\n")  # as terminals end lines
        self._cut = "".join(_CUT.findall(raw))
        raw = raw.removesuffix(self._cut)
        if MOVES.search(raw):
            lines, up, column = _draw(raw)
            texts = _join(lines)
            fixed = max(0, len(lines) - max(REACH, up + 1))
            self._above += [text + "\n" for text in texts[:fixed]]
            raw = "\n".join(texts[fixed:])
            # Not at the end, or behind spaces that are not kept:
            if up or column != len(lines[-1]) or "".join(lines[-1]).endswith(" "):
                raw += f"\x1b[{up}A" * (up > 0) + "\r" + f"\x1b[{column}C" * (column > 0)
        else:
            fixed_text, *reach = raw.rsplit("\n", REACH)
            if len(reach) == REACH:
                self._above.append(fixed_text + "\n")
                raw = "\n".join(reach)
        self._open = raw

    def __str__(self) -> str:
        self._take()
        rest = self._open
        if MOVES.search(rest):
            rest = "\n".join(_join(_draw(rest)[0]))
        self._above = ["".join(self._above)]
        return self._above[0] + rest


def settle(text: str) -> str:
    """Return what is left on the screen when a text has been written."""
    screen = Screen()
    screen.write(text)
    return str(screen)


def _draw(text: str) -> tuple[list[list[str]], int, int]:
    """Write a text on an empty screen; return the characters of each line, how many lines above
    the last one the cursor is, and its column."""
    lines: list[list[str]] = [[]]
    row = column = 0
    dress = ""
    for numbers, command, character in _TOKENS.findall(text):
        if command == "m":
            dress += f"\x1b[{numbers}m"
        elif command:
            count = int(numbers) if numbers.isdigit() else 1
            if command == "A":
                row = max(0, row - count)
            elif command == "B":
                row = min(len(lines) - 1, row + count)
            elif command == "C":
                column += count
            elif command == "K":
                lines[row] = [] if numbers == "2" else lines[row][:column]
        elif character == "\r":
            column = 0
        elif character == "\b":
            column = max(0, column - 1)
        elif character == "\n":
            _dress_end(lines[row], dress)  # it ends with its line
            row, column, dress = row + 1, 0, ""
            if row == len(lines):
                lines.append([])
        else:
            line = lines[row]
            line += [" "] * (column - len(line))
            line[column : column + 1] = [dress + character]
            column, dress = column + 1, ""
    _dress_end(lines[row], dress)
    return lines, len(lines) - 1 - row, column


def _join(lines: list[list[str]]) -> list[str]:
    return ["".join(line).rstrip(" ") for line in lines]


def _dress_end(line: list[str], dress: str) -> None:
    if dress:  # on an empty line it needs a place: what has no width would move what follows
        line[-1:] = [line[-1] + dress if line else dress + " "]
