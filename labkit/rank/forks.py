"""Let a child that a rank forks, such as a worker of a data loader, leave the rank's garbage alone.

A process group that the rank has left may be garbage that Python has not collected yet: the
traceback of an error keeps it in a cycle. If the child collects it, the group's destructor waits
for gloo's threads, which no fork takes along, and the child hangs or is aborted. So a child never
collects what was there before it; what it makes itself it collects as ever.
"""

from __future__ import annotations

import gc
import os

_installed = False
_was_enabled = True


def install() -> None:
    """Begin to do so; once."""
    global _installed
    if not _installed:
        _installed = True
        os.register_at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_begin)


def _pause() -> None:
    global _was_enabled
    _was_enabled = gc.isenabled()
    gc.disable()


def _go_on() -> None:
    if _was_enabled:
        gc.enable()


def _begin() -> None:
    gc.freeze()
    _go_on()
