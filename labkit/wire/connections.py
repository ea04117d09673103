"""List the TCP connections of a process, so that both ends of one can be recognised.

The kernel's table of all connections takes it some 10 ms to write, however few there are: a
process that looks at itself asks its own sockets instead, and a look at others reads it once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..guard.peers import Address, plain, read_address, table

#: The own address of one end, and the other's.
Pair = tuple[Address, Address]


class Connection(NamedTuple):
    """One end of a connection; the other end has the addresses the other way round."""

    fd: int
    own: Address
    other: Address


def list_connections() -> list[Connection]:
    """List the open TCP connections of this process."""
    if not sys.platform.startswith("linux"):
        return _ask_psutil(os.getpid())
    numbers = sorted(map(int, os.listdir("/proc/self/fd")))
    return [found for fd in numbers if (found := _ask_socket(fd)) is not None]


@contextlib.contextmanager
def borrow(fd: int) -> Iterator[socket.socket]:
    """Give the TCP socket behind a file descriptor of this process; it stays its owner's.

    Raises
    ------
    OSError
        If the descriptor is something else, or closed.
    """
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):  # most are not, and this is cheap
        raise OSError(errno.EPROTOTYPE, os.strerror(errno.EPROTOTYPE))
    # A type that is told keeps Python from making the socket non-blocking, for its owner too, as
    # it does where socket.setdefaulttimeout was called.
    twin = socket.socket(-1, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, -1, fileno=fd)
    try:
        streams = twin.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
        if not streams or twin.family not in (socket.AF_INET, socket.AF_INET6):
            raise OSError(errno.EPROTOTYPE, os.strerror(errno.EPROTOTYPE))
        yield twin
    finally:
        twin.detach()


def _ask_socket(fd: int) -> Connection | None:
    """Return a file descriptor's connection, None if it is something else or closed."""
    # It may listen, too, or have been shut down.
    with contextlib.suppress(OSError), borrow(fd) as twin:
        return Connection(fd, plain(*twin.getsockname()[:2]), plain(*twin.getpeername()[:2]))
    return None


def list_connections_of(pids: Iterable[int]) -> dict[int, list[Connection]]:
    """List the open TCP connections of processes of this host, by process.

    Those that are not there, or somebody else's, are left out.
    """
    import psutil

    out: dict[int, list[Connection]] = {}
    tables: dict[str, list[list[str]]] = {}  # by network namespace
    for pid in pids:
        with contextlib.suppress(psutil.Error, OSError):
            if not sys.platform.startswith("linux"):
                out[pid] = _ask_psutil(pid)
                continue
            files = dict(_sockets(pid))
            namespace = os.readlink(f"/proc/{pid}/ns/net")
            if namespace not in tables:
                tables[namespace] = list(table(pid))
            out[pid] = [
                Connection(files[row[9]], read_address(row[1]), read_address(row[2]))
                for row in tables[namespace]
                if row[9] in files
            ]
    return out


def _sockets(pid: int) -> Iterator[tuple[str, int]]:
    """Yield the sockets of a process: inode, and file descriptor."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            if target.startswith("socket:["):
                yield target[8:-1], int(fd)


def _ask_psutil(pid: int) -> list[Connection]:
    import psutil  # which takes 10 ms, of a process that may only want the rest of this

    found = psutil.Process(pid).net_connections("tcp")
    return [Connection(c.fd, plain(*c.laddr), plain(*c.raddr)) for c in found if c.raddr]
