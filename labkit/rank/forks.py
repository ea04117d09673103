"""Let a child that a rank forks, such as a worker of a data loader, be a process of its own.

It leaves the rank's garbage alone. A process group that the rank has left may be garbage that
Python has not collected yet: the traceback of an error keeps it in a cycle. If the child collects
it, the group's destructor waits for gloo's threads, which no fork takes along, and the child hangs
or is aborted. So a child never collects what was there before it; what it makes itself it collects
as ever.

And it ends with SIGTERM, as elsewhere. The engine's handler would run the rank's exit functions in
it; and Python runs handlers between two instructions only, so one that comes just before a wait for
a semaphore is never run: whoever ends a pool of processes would wait for ever. Until the child has
the system's way again, a SIGTERM waits.
"""

from __future__ import annotations

import gc
import os
import signal
import threading

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
        os.register_at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_begin)


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


def _begin() -> None:
    global _forking, _lock
    _lock, _forking = threading.Lock(), 1  # no other thread comes along
    gc.freeze()
    if signal.getsignal(signal.SIGTERM) == _on_sigterm:  # else it is one of the user's
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _go_on()
