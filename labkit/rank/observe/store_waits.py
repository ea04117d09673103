"""Recognise a rank that waits for a key of a store: nothing of torch's Python is on its stack.

The methods of ``Store`` that wait are replaced by ones that pass on; a rank that waits stands
inside one of ours, whose frame holds the store and the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import FrameType
from typing import Any

from ..torch_internals import names, stores

#: torch's own methods, which ours call
stock: dict[str, Any] = {}


def install() -> None:
    """Begin to recognise waits; once."""
    if stock or not names.is_on("stores"):
        return
    for function in (get, wait):
        name = function.__name__
        stock[name] = getattr(stores.Store, name)
        setattr(stores.Store, name, function)


def get(self: stores.Store, key: Any) -> Any:
    return stock["get"](self, key)


def wait(self: stores.Store, keys: Any, *timeout: timedelta, **named: timedelta) -> Any:
    return stock["wait"](self, keys, *timeout, **named)


_CODES = {get.__code__, wait.__code__}


def is_wait(frame: FrameType) -> bool:
    """Tell whether a frame is a call that waits for keys of a store."""
    return frame.f_code in _CODES


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
    given = (*values.get("timeout", ()), *values.get("named", {}).values())
    return next((t for t in given if isinstance(t, timedelta)), stores.limit(values["self"]))
