"""Make a rank that can be freed while gloo connects it with the other ranks of a new group.

The constructor of ``ProcessGroupGloo`` waits in C++, deaf to interrupts, until each of the others
is connected. Where they have to connect with this rank, it has no connection that could be shut;
where it connects with them, it does so once more when its connection is shut. So here the
constructor runs in a side thread, until the group's time limit at the most.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch.distributed as dist

_original: Callable[..., None] | None = None
#: Of each constructor that is waited for: gets None when it has returned, or its error.
_attempts: list[queue.SimpleQueue[BaseException | None]] = []
#: Stand for the constructors that run, whether somebody waits for them or not.
_running: set[object] = set()


def install() -> None:
    """Begin to do so; call it before the first process group is formed."""
    global _original
    if _original is None and dist.is_gloo_available():
        _original = dist.ProcessGroupGloo.__init__
        dist.ProcessGroupGloo.__init__ = connect  # type: ignore[method-assign]


def connect(self: Any, *given: Any, **named: Any) -> None:
    """Do what torch's constructor does."""
    # Its ``get`` is one call of C, which leaves this frame on top of the stack.
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        assert _original is not None
        result: BaseException | None = None
        try:
            _original(self, *given, **named)
        except BaseException as error:
            result = error
        _running.discard(ended)
        ended.put(result)
        del result  # it keeps its frames, and they would keep it

    _running.add(ended)
    threading.Thread(target=run, name="labkit connections", daemon=True).start()
    _attempts.append(ended)
    try:
        error = ended.get()
    finally:
        _attempts.remove(ended)
    try:
        if error is not None:
            raise error
    finally:
        del error  # it keeps its frames, and they would keep it


def cancel() -> int:
    """Make what waits for a group to be connected fail; return how much there was."""
    found = list(_attempts)
    for ended in found:
        ended.put(
            dist.DistNetworkError("Connection closed: labkit ended the search for the other ranks.")
        )
    return len(found)


def is_under_way() -> bool:
    """Return whether a constructor runs, which need not be waited for any more.

    One that was interrupted goes on: it waits for addresses of the other ranks, and holds the lock
    of the store that this rank's next group needs.
    """
    return bool(_running)


def forget() -> None:
    """Pass over constructors that still run: the next group has another store."""
    _running.clear()


def behind(frame: FrameType) -> FrameType:
    """Return the frame that a thread would be in if it connected a group by itself."""
    outer = frame.f_back
    return outer if frame.f_code is _CONNECT and outer is not None else frame


_CONNECT = connect.__code__
