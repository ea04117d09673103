"""Tell whether data is on its way to this process or from it: in the queues of its sockets.

What was sent stays in the sender's queue until the other end has it, however slow or broken the
link is; what has come stays in the receiver's queue until somebody reads it. Gloo's own threads
carry it between those and the tensors.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys

from . import cpu_clock

#: Bytes that wait in a socket: to go out (or to be acknowledged), and to be read.
_SIOCOUTQ, _SIOCINQ = 0x5411, 0x541B
FILES = "/proc/self/fd"


class Looks:
    """What was on its way at two looks."""

    def __init__(self) -> None:
        self._now: tuple[int, int] | None = None
        self._before: tuple[int, int] | None = None

    def look(self) -> None:
        """Look once more."""
        self._before, self._now = self._now, (count_bytes(), cpu_clock.carriers())

    def forget(self) -> None:
        """Forget the looks so far."""
        self._now, self._before = None, None

    def is_still(self) -> bool:
        """Tell whether nothing was on its way at the last two looks, and between them."""
        if self._now is None or self._before is None:
            return False
        return self._now[0] == self._before[0] == 0 and self._now[1] == self._before[1]


def count_bytes() -> int:
    """Count the bytes that wait in this process's sockets; 1 where the system does not say."""
    if not sys.platform.startswith("linux"):
        return 1
    count = 0
    for name in os.listdir(FILES):
        with contextlib.suppress(OSError, ValueError):
            if os.readlink(f"{FILES}/{name}").startswith("socket:"):
                count += _waiting(int(name))
    return count


def _waiting(descriptor: int) -> int:
    """Count the bytes in the queues of one socket; 0 for one that listens."""
    total = 0
    for request in (_SIOCOUTQ, _SIOCINQ):
        with contextlib.suppress(OSError):
            (bytes_there,) = struct.unpack("i", fcntl.ioctl(descriptor, request, bytes(4)))
            total += bytes_there
    return total
