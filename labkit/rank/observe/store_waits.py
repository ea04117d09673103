"""Recognise a rank that waits in a store: nothing of torch's Python is on its stack.

The methods of ``Store`` that wait for a key, and the constructor of ``TCPStore``, in which a server
waits for its clients and a client for its server, are replaced by ones that pass on; a rank that
waits stands inside one of ours, whose frame holds the store and what it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import FrameType
from typing import Any

import torch.distributed as dist

from ..torch_internals import groups, names

#: torch's own methods, which ours call
original: dict[str, Any] = {}
#: how many calls have begun: two looks that see the same one have the same number
calls = 0


def install() -> None:
    """Begin to recognise waits; once."""
    if original or not names.is_on("stores"):
        return
    for function in (get, wait):
        name = function.__name__
        original[name] = getattr(dist.Store, name)
        setattr(dist.Store, name, function)
    original["open"] = dist.TCPStore.__init__
    setattr(dist.TCPStore, "__init__", TCPStore.__init__)  # noqa: B010


def get(self: dist.Store, key: Any) -> Any:
    _count()
    return original["get"](self, key)


def wait(self: dist.Store, keys: Any, *timeout: timedelta, **named: timedelta) -> Any:
    _count()
    return original["wait"](self, keys, *timeout, **named)


def _count() -> None:
    global calls
    calls += 1


class TCPStore:
    """Where the constructor of torch's class of this name gets its own from."""

    def __init__(self, *given: Any, **named: Any) -> None:
        _count()
        original["open"](self, *given, **named)


_OPENS = TCPStore.__init__.__code__
_CODES = {get.__code__, wait.__code__, _OPENS}


def is_wait(frame: FrameType) -> bool:
    """Return whether a frame is a call that waits in a store."""
    return frame.f_code in _CODES


def opens(frame: FrameType) -> bool:
    """Return whether a call makes a server, which waits for its clients, or looks for one."""
    return frame.f_code is _OPENS


def keys_of(frame: FrameType) -> tuple[str, ...]:
    """Return the keys that a call waits for."""
    values = frame.f_locals
    if "keys" not in values:
        return (str(values["key"]),)
    keys: Sequence[Any] = values["keys"]
    return tuple(map(str, keys))


def limit_of(frame: FrameType) -> timedelta | None:
    """Return how long a call waits, None if torch does not say."""
    values = frame.f_locals
    if opens(frame):
        return _limit(*values["given"], *values["named"].values()) or groups.STORE_LIMIT
    given = _limit(*values.get("timeout", ()), *values.get("named", {}).values())
    return given or groups.store_limit(values["self"])


def _limit(*given: Any) -> timedelta | None:
    return next((value for value in given if isinstance(value, timedelta)), None)
