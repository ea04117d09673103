"""List the TCP connections of a process, so that both ends of one can be recognised."""

from __future__ import annotations

from typing import Any, NamedTuple

import psutil

#: Host and port.
Address = tuple[str, int]
#: The own address of one end, and the other's.
Pair = tuple[Address, Address]


class Connection(NamedTuple):
    """One end of a connection; the other end has the addresses the other way round."""

    fd: int
    own: Address
    other: Address


def list_connections(pid: int | None = None) -> list[Connection]:
    """List the open TCP connections of a process (this one if None).

    Raises
    ------
    psutil.Error
        If there is no such process or it is somebody else's.
    """
    found = psutil.Process(pid).net_connections("tcp")
    return [Connection(c.fd, _plain(c.laddr), _plain(c.raddr)) for c in found if c.raddr]


def _plain(address: Any) -> Address:
    """Write an IPv4 address the same way whether its socket is IPv4 or IPv6."""
    return address.ip.removeprefix("::ffff:"), address.port
