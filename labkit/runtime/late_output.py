"""Find what ranks write when nobody waits for it: their threads print after a cell has ended.

A rank labels what it writes with the request that it has got last. That request may be over, which
ipyparallel notes without telling anybody, or one of labkit's own, whose output nobody shows, or a
cell whose last output was given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .output import STREAMS
from .terminal_text import settle

#: Requests of which it is known who got them: what an engine writes has the label of its last one.
NOTED = 5_000


class LateOutput:
    """What the engines of a client have written that no cell has shown.

    Parameters
    ----------
    client
        An ``ipyparallel.Client``.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._receivers: dict[str, int] = {}  # request -> who got it, the latest ones
        self._kept: dict[str, Any] = {}  # request -> its reply's future
        self._seen: dict[tuple[str, str, bool], int] = {}  # characters that were shown already

    def note(self, engine: int, reply: Any) -> None:
        """Note that an engine has got a request, of which this is the reply's future."""
        self._receivers[reply.msg_id] = engine
        if len(self._receivers) > NOTED:
            del self._receivers[next(iter(self._receivers))]

    def keep(self, reply: Any, shown: Mapping[str, str] | None = None) -> None:
        """Count what comes for a request as late from now on.

        Parameters
        ----------
        reply
            ipyparallel's future of the request.
        shown
            The text of each stream that a cell shows; nothing of a request that is kept already.
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
            self._add(found, request, texts, kept=True)
            if over:
                self._forget(request, kept=True)
                del self._kept[request]
        for request, told in list(self._client.metadata.items()):
            # The request is over if its own record has gone. ("submitted" is a date, by mistake.)
            if isinstance(told, dict) and told["submitted"] is None:
                texts = {stream: told[stream] or "" for stream in STREAMS}
                if not self._add(found, request, texts, kept=False):
                    self._client.metadata.pop(request, None)
                    self._forget(request, kept=False)
        return found

    def _add(
        self,
        found: dict[int, dict[str, str]],
        request: str,
        texts: Mapping[str, str],
        *,
        kept: bool,
    ) -> bool:
        """Add what is new of the texts of a request; tell whether there was anything."""
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

    def _forget(self, request: str, *, kept: bool) -> None:
        for stream in STREAMS:
            self._seen.pop((request, stream, kept), None)
