"""Look after the processes that cells start: what they are to begin with, and how they end.

A child that a rank forks leaves the rank's garbage alone: a process group in it would wait, in its
destructor, for gloo's threads, which no fork takes along. And it ends with SIGTERM, as elsewhere:
the engine's handler would run the rank's exit functions, and Python would never run one that comes
just before a wait for a semaphore. Until the child has the system's way again, a SIGTERM waits.

After a stop, the processes end that the cell has started with ``multiprocessing``: Ctrl-C in a
terminal reaches them too, a stop reaches the rank only. They could hold a port or a GPU.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess

from ..base import times

#: Those that were there when the cell began.
_before: set[BaseProcess] = set()


def note() -> None:
    """Record which are there before a cell begins."""
    global _before
    _before = set(multiprocessing.active_children())


def end(later: Callable[[float, Callable[[], None]], object]) -> None:
    """End those that were started since; ``later`` calls a function after some seconds."""
    started = set(multiprocessing.active_children()) - _before
    # Torch raises an error in the rank if a worker of a DataLoader is killed. SIGTERM ends it well.
    daemons = {p for p in started if p.daemon}
    _end([*started - daemons], (signal.SIGINT, signal.SIGTERM, signal.SIGKILL), later)
    _end([*daemons], (signal.SIGINT, signal.SIGTERM), later)


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


# -- forks ----------------------------------------------------------------------------------------

_installed = False
#: How the rank itself ends.
_on_sigterm: object = None
#: What the thread that forks has blocked otherwise.
_blocked = threading.local()
#: Of the threads that fork at this moment: how many, and whether garbage was collected before.
_lock = threading.Lock()
_forking = 0
_was_enabled = True


def install() -> None:
    """Begin to do so; once, in a rank that knows already how it ends itself."""
    global _installed, _on_sigterm
    if not _installed:
        _installed = True
        _on_sigterm = signal.getsignal(signal.SIGTERM)
        os.register_at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_begin_child)


def _pause() -> None:
    global _forking, _was_enabled
    _blocked.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with _lock:
        if not _forking:
            _was_enabled = gc.isenabled()
        _forking += 1
        gc.disable()


def _go_on() -> None:
    global _forking
    with _lock:
        _forking -= 1
        if not _forking and _was_enabled:
            gc.enable()
    signal.pthread_sigmask(signal.SIG_SETMASK, _blocked.before)


def _begin_child() -> None:
    global _forking, _lock
    _lock, _forking = threading.Lock(), 1  # no other thread comes along
    gc.freeze()
    if signal.getsignal(signal.SIGTERM) == _on_sigterm:  # else it is one of the user's
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _go_on()
