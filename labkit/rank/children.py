"""End the processes that an interrupted cell has started and not waited for.

Ctrl-C in a terminal reaches all processes that a program has started; a stop reaches the rank
only. What ``mp.spawn`` or ``mp.Process`` has started would go on, and could hold a port or a GPU.
Left alone are daemons, which end with what has started them (workers of a DataLoader or a Pool),
and what was not started by ``multiprocessing``, as a server in the background.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess

from .. import times

#: Those that were there when the cell began.
_before: set[BaseProcess] = set()


def note() -> None:
    """Note which are there before a cell begins."""
    global _before
    _before = set(multiprocessing.active_children())


def end(later: Callable[[float, Callable[[], None]], object]) -> None:
    """End those that were started since; ``later`` calls a function after some seconds."""
    started = [p for p in multiprocessing.active_children() if p not in _before and not p.daemon]
    _end(started, (signal.SIGINT, signal.SIGTERM, signal.SIGKILL), later)


def _end(
    children: Sequence[BaseProcess],
    signals: Sequence[signal.Signals],
    later: Callable[[float, Callable[[], None]], object],
) -> None:
    left = [child for child in children if child.is_alive()]
    if not left or not signals:
        return
    signum, *rest = signals
    for child in left:
        with contextlib.suppress(ProcessLookupError):
            if child.pid is not None:
                os.kill(child.pid, signum)
    later(times.CHILDREN_ENDED.seconds(), lambda: _end(left, rest, later))
