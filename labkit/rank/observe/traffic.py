"""Tell whether data is on its way to this process or from it: in the queues of its sockets.

What was sent stays in the sender's queue until the other end has it, however slow or broken the
link is; what has come stays in the receiver's queue until somebody reads it. Gloo's own threads
carry it between those and the tensors.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import struct
import sys
from typing import NamedTuple

from . import cpu_clock

log = logging.getLogger("labkit")
#: Bytes that wait in a socket: to go out (or to be acknowledged), and to be read.
_SIOCOUTQ, _SIOCINQ = 0x5411, 0x541B
FILES = "/proc/self/fd"


class Looks:
    """What was on its way at two looks."""

    def __init__(self) -> None:
        self._now: _Look | None = None
        self._before: _Look | None = None

    def look(self) -> None:
        """Look once more."""
        self._before, self._now = self._now, _Look(*count_bytes(), *cpu_clock.carriers())

    def forget(self) -> None:
        """Forget the looks so far."""
        self._now, self._before = None, None

    def is_still(self) -> bool:
        """Tell whether nothing was on its way at the last two looks, and between them.

        What has come and lies there unread, while gloo's threads do nothing, is not on its way:
        nobody takes it, for it fits no call that was made.
        """
        now, before = self._now, self._before
        if now is None or before is None:
            return False
        if now.awake and before.awake:
            log.debug("data may be on its way: gloo's thread is awake")
            return False
        sent = now.out == before.out == 0
        still = sent and (now.unread, now.carried) == (before.unread, before.carried)
        if not still:
            log.debug("data is on its way: %s, then %s", before, now)
        return still


class _Look(NamedTuple):
    out: int  #: bytes that the other ends do not have yet
    unread: int  #: bytes that have come
    carried: int  #: processor time of gloo's threads that run collectives, nanoseconds
    awake: bool  #: the one that moves data runs right now; it wakes up by chance too


def count_bytes() -> tuple[int, int]:
    """Count the bytes in this process's sockets: those that the other ends do not have yet, and
    those that nobody has read; (1, 0) where the system does not say."""
    if not sys.platform.startswith("linux"):
        return 1, 0
    out = unread = 0
    for name in os.listdir(FILES):
        with contextlib.suppress(OSError, ValueError):
            if os.readlink(f"{FILES}/{name}").startswith("socket:") and _is_tcp(int(name)):
                out += _waiting(int(name), _SIOCOUTQ)
                unread += _waiting(int(name), _SIOCINQ)
    return out, unread


def _is_tcp(descriptor: int) -> bool:
    """Tell whether a socket is TCP's: gloo's are; those that carry labkit's questions, on one
    host, are not."""
    with socket.socket(fileno=os.dup(descriptor)) as twin:
        return twin.family in (socket.AF_INET, socket.AF_INET6)


def _waiting(descriptor: int, request: int) -> int:
    """Count the bytes in a queue of one socket; 0 for one that listens."""
    with contextlib.suppress(OSError):
        (count,) = struct.unpack("i", fcntl.ioctl(descriptor, request, bytes(4)))
        return int(count)
    return 0
