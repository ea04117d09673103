"""Say what outside the ranks may still give work to one that has none."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import CodeType
from typing import Any

from ..launch import ipyparallel_internals
from ..wire import python_threads

THREAD = "a thread of this notebook is alive, which may send something to a rank: {}"
TASK = "a task of lab.client is under way, which may go to any rank"
TIMER = "a timer of this notebook will call {}, which may send something to a rank"
CLIENT = "another client has connected to the lab, and may send something to a rank"
#: Timers of the system, and the signals that they send.
_TIMERS = {
    signal.ITIMER_REAL: signal.SIGALRM,
    signal.ITIMER_VIRTUAL: signal.SIGVTALRM,
    signal.ITIMER_PROF: signal.SIGPROF,
}
#: Names by which things are sent to ranks: an alarm that only raises an error has none of them.
_SENDING = frozenset(
    ["apply", "apply_async", "apply_sync", "execute", "map", "map_async", "map_sync", "push", "run"]
)


def doubts(client: Any, strangers: bool = False) -> tuple[str, ...]:
    """Say what may still send something to a rank: threads and timers of the notebook, tasks of
    its views, other clients if there are any (``strangers``)."""
    threads = python_threads.look({threading.get_ident()})
    found = [THREAD.format(t.name) for t in threads if not python_threads.joins(t.frame)]
    found += [TIMER.format(name) for name in _alarms()]
    if ipyparallel_internals.has_tasks(client):
        found.append(TASK)
    if strangers:
        found.append(CLIENT)
    return tuple(found)


def _alarms() -> Iterator[str]:
    """Name the functions that timers of the system will call and that may send something."""
    for timer, number in _TIMERS.items():
        handler = signal.getsignal(number)
        if callable(handler) and signal.getitimer(timer)[0] > 0:
            code = python_threads.code_of(handler)
            if code is None or _SENDING & set(_names(code)):
                yield getattr(handler, "__name__", repr(handler))


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function uses, those of functions inside it too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
