"""Name what of the user's an event loop of asyncio may still call: the loop has no public list."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from typing import Any

from ..wire import python_threads
from ..wire.state import Feature, Missing, find_missing_in_sources

#: What rests on which names, by library.
FEATURES: dict[str, dict[str, Feature]] = {
    "Python": {
        "event loops": Feature(
            (
                "BaseEventLoop._ready",
                "BaseEventLoop._scheduled",
                "BaseSelectorEventLoop._selector",
                "_UnixSelectorEventLoop._signal_handlers",
                "Handle._args",
                "Handle._callback",
                "Task._fut_waiter",
            ),
            "deadlocks may be called proved that a timer or a reader of an event loop would end",
        ),
    },
}
#: The source file that defines each class.
_FILES = {
    "BaseEventLoop": ("asyncio", "base_events.py"),
    "BaseSelectorEventLoop": ("asyncio", "selector_events.py"),
    "_UnixSelectorEventLoop": ("asyncio", "unix_events.py"),
    "Handle": ("asyncio", "events.py"),
    "Task": ("asyncio", "tasks.py"),
}


@cache
def check() -> tuple[Missing, ...]:
    """Return the features that are off with this Python."""
    return find_missing_in_sources(FEATURES, _FILES)


def tasks_of_users(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Name the tasks of the user's that wait in an event loop."""
    tasks = [t for t in asyncio.all_tasks(loop) if not t.done()]
    own = (t.get_coro() for t in tasks if _is_users_task(t.get_coro()))
    return [getattr(coroutine, "__qualname__", repr(coroutine)) for coroutine in own]


def _is_users_task(coroutine: Any, cells: bool = False) -> bool:
    """Return whether a task is the user's; with ``cells``, one that runs a cell is too."""
    files = []
    while (code := getattr(coroutine, "cr_code", None)) is not None:
        files.append(code.co_filename)
        coroutine = coroutine.cr_await
    packages = [python_threads.package(file) for file in files]
    began = next((p for p in packages if p != "python"), "")
    return "" in packages and (cells or began not in python_threads.HARMLESS)


def timers_of_users(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Name the functions of the user's that an event loop is going to call."""
    # Tornado's timers are functions of its own, with the user's among the arguments.
    called = [
        f
        for handle in _handles(loop)
        if not handle.cancelled()
        for f in (handle._callback, *(handle._args or ()))
    ]
    return [_called(f) for f in called if python_threads.may_issue(f)]


def readers_of_users(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Name the functions of the user's that an event loop calls when a file has something to read
    or can be written to, or when a signal comes."""
    handles = list((getattr(loop, "_signal_handlers", None) or {}).values())
    files: Mapping[int, Any] = getattr(getattr(loop, "_selector", None), "get_map", dict)() or {}
    for key in list(files.values()):
        handles += [h for h in key.data or () if h is not None]
    called = [f for handle in handles for f in (handle._callback, *(handle._args or ()))]
    return [_called(f) for f in called if python_threads.may_issue(f)]


def _called(function: Any) -> str:
    function = getattr(function, "func", function)  # functools.partial
    return getattr(function, "__name__", repr(function))


def sleeps(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a cell or a task waits in an event loop for a time to come, as asyncio.sleep
    does. The engine's own tasks do so forever."""
    own = [t for t in asyncio.all_tasks(loop) if not _is_users_task(t.get_coro(), cells=True)]
    awaited = [getattr(task, "_fut_waiter", None) for task in own]
    for handle in _handles(loop):
        named = getattr(handle._callback, "__name__", "")
        if named in _WAKERS and not any(f in (handle._args or ()) for f in awaited):
            return True
    return False


#: What asyncio's own functions that wait for a time call then.
_WAKERS = ("_set_result_unless_cancelled", "_release_waiter", "_on_timeout")


def _handles(loop: asyncio.AbstractEventLoop) -> list[Any]:
    return [*getattr(loop, "_scheduled", ()), *getattr(loop, "_ready", ())]
