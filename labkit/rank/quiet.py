"""Send the notebook no more than it uses, where its request says so (``protocol.QUIET``).

Original, a rank tells of each request that it is busy, then what the request was, and at the end
that it is idle: all output is there. For an empty cell that is three messages of four, each of
which four processes handle. The notebook knows its request. That nothing was written the reply can
say itself; where something was, the last of the three still follows the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..wire.protocol import QUIET
from . import ipython_internals, streams

#: What ``streams`` had sent when the request began that is handled; None: none has.
_begun: object = None
#: Whether its reply has said that no output comes.
_said = False
#: What the reply to the request that is handled shall say besides.
told: dict[str, Any] = {}


def install(kernel: Any) -> None:
    """Begin, in the kernel of this rank."""
    ipython_internals.choose_messages(kernel, _is_wanted, _note_reply)


def _is_wanted(request: Mapping[str, Any], what: str) -> bool:
    """Return whether a message about a request is to be sent: "busy", "execute_input", "idle"."""
    global _begun, _said
    if not _is_quiet(request):
        return True
    if what == "busy":
        _begun, _said = streams.sent(), False
        told.clear()
    return what == "idle" and not _said


def _note_reply(request: Mapping[str, Any], content: dict[str, Any]) -> None:
    """Report in the content of a reply whether there was output."""
    global _begun, _said
    if _is_quiet(request):
        streams.flush()
        _said = _begun is not None and streams.sent() is _begun
        content[QUIET] = _said
        content.update(told)
        told.clear()
        _begun = None


def _is_quiet(request: Mapping[str, Any]) -> bool:
    return bool((request.get("metadata") or {}).get(QUIET))
