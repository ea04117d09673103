"""Tell whether data is on its way to this process or from it: in the queues of its sockets.

What was sent stays in the sender's queue until the other end has it, however slow or broken the
link is; what has come stays in the receiver's queue until somebody reads it. Gloo's own threads
carry it between those and the tensors.

The thread that does so for a connection may also run without moving data: gloo's transport
(``Pair::write`` and ``Pair::prepareRead`` in its ``tcp/pair.cc``) tries again and again to send
from a buffer, or to read into one, that went with its handle. That moves no byte, however long it
runs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import socket
import stat
import struct
import sys
from typing import NamedTuple

from ...base import times
from ...guard.peers import Address, plain
from ...wire.connections import borrow, list_connections
from .. import os_threads

log = logging.getLogger("labkit")
#: Bytes that wait in a socket: to go out (or to be acknowledged), and to be read.
_SIOCOUTQ, _SIOCINQ = 0x5411, 0x541B
FILES = "/proc/self/fd"
#: Where Linux's ``struct tcp_info`` has what a connection has sent (and the other end has) and
#: received so far; older kernels leave them out.
_BYTES_MOVED = struct.Struct("=120xQQ")
#: Where it has for how many bytes the other end has room; since Linux 5.4.
_ROOM = struct.Struct("=228xI")

#: The other ends of the connections by which the notebook reaches this rank.
_notebook: frozenset[Address] = frozenset()
#: Sockets that carry no data of ranks and never will, most of what a rank has: the notebook's
#: connections, and those that are not TCP. Descriptor -> inode; nothing more is asked of them.
_others: dict[int, int] = {}


def leave_out_notebook() -> None:
    """Leave out the connections that this process has now, which carry labkit's own questions.

    Call it before there is a process group. They are known by their other ends from then on.
    """
    global _notebook
    _notebook = frozenset(c.other for c in list_connections())
    _others.clear()


class Looks:
    """What was on its way at two looks."""

    def __init__(self) -> None:
        self._now: _Look | None = None
        self._before: _Look | None = None
        #: processor time of each thread of gloo's transport when bytes were seen to move last
        self._moved: dict[int, int] = {}

    def look(self) -> None:
        """Look once more."""
        # In this order the bytes are counted before the time is taken from which on it counts,
        # and after the time up to which it does.
        threads = os_threads.carriers()
        now = _Look(count_bytes(), threads)
        if self._now is None or self._now.bytes != now.bytes:
            self._moved = {n: used for n, (used, _) in os_threads.carriers().movers.items()}
        for number, (used, _) in threads.movers.items():
            self._moved.setdefault(number, used)
        self._before, self._now = self._now, now

    def forget(self) -> None:
        """Forget the looks so far."""
        self._now, self._before = None, None

    def is_still(self) -> bool:
        """Return whether nothing was on its way at the last two looks, and between them.

        What has come and lies there unread, while gloo's threads do nothing, is not on its way:
        nobody takes it, for it fits no call that was made.
        """
        now, before = self._now, self._before
        if now is None or before is None:
            return False
        if any(before.is_awake(n) and now.is_awake(n) and not self._spins(n) for n in self._moved):
            log.debug("data may be on its way: gloo's thread is awake")
            return False
        sent = now.bytes.out == before.bytes.out == 0
        read = now.bytes.unread == before.bytes.unread
        carries = now.threads.runs or before.threads.runs
        still = sent and read and not carries and now.threads.carried == before.threads.carried
        if not still:
            log.debug("data is on its way: %s, then %s", before, now)
        return still

    def _spins(self, number: int) -> bool:
        """Return whether a thread of gloo's transport has run, and moved nothing."""
        assert self._now is not None
        used, _ = self._now.threads.movers[number]
        known = self._now.bytes.moved >= 0
        return known and used - self._moved[number] >= times.SPINNING_NANOSECONDS


class Bytes(NamedTuple):
    """Bytes in sockets."""

    out: int  #: that the other ends do not have yet, and would take
    unread: int  #: that have come
    moved: int  #: that the other ends have, and that have come, in all; -1: not known


class _Look(NamedTuple):
    bytes: Bytes
    threads: os_threads.Carriers  #: that move them

    def is_awake(self, number: int) -> bool:
        """Return whether a thread of gloo's transport ran right then; it wakes up by chance too."""
        return self.threads.movers.get(number, (0, False))[1]


def count_bytes() -> Bytes:
    """Count the bytes in this process's sockets: those that the other ends do not have yet, and
    those that nobody has read; one that has to go out where the system does not say."""
    if not sys.platform.startswith("linux"):
        return Bytes(1, 0, -1)
    out = unread = moved = 0
    for descriptor in map(int, os.listdir(FILES)):
        try:
            file = os.fstat(descriptor)
            if not stat.S_ISSOCK(file.st_mode) or _others.get(descriptor) == file.st_ino:
                continue
            with borrow(descriptor) as twin:
                if _is_notebooks(twin):
                    _others[descriptor] = file.st_ino
                    continue
                about = twin.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                if not _is_refused(about):
                    out += _waiting(descriptor, _SIOCOUTQ)
                unread += _waiting(descriptor, _SIOCINQ)
                gone = _moved(about)
                moved = moved + gone if moved >= 0 and gone >= 0 else -1
        except OSError as error:
            if error.errno == errno.EPROTOTYPE:  # no TCP, else it has just been closed
                _others[descriptor] = file.st_ino
    return Bytes(out, unread, moved)


def _is_notebooks(twin: socket.socket) -> bool:
    """Return whether a connection is one of those by which the notebook reaches this rank."""
    if not _notebook:
        return False
    with contextlib.suppress(OSError):  # it listens, or has been closed at the other end
        return plain(*twin.getpeername()[:2]) in _notebook
    return False


def _is_refused(about: bytes) -> bool:
    """Return whether the other end of a connection takes nothing at the moment: it has unread bytes
    as many as it may, and what waits here is on no link. Its own looks say whether it reads."""
    return len(about) >= _ROOM.size and _ROOM.unpack_from(about)[0] == 0


def _moved(about: bytes) -> int:
    """Count the bytes that a connection has carried in both directions; -1 if it is not known."""
    return sum(_BYTES_MOVED.unpack_from(about)) if len(about) >= _BYTES_MOVED.size else -1


def _waiting(descriptor: int, request: int) -> int:
    """Count the bytes in a queue of one socket; 0 for one that listens."""
    with contextlib.suppress(OSError):
        (count,) = struct.unpack("i", fcntl.ioctl(descriptor, request, bytes(4)))
        return int(count)
    return 0
