"""Tell whose process is at the other end of a connection.

TCP itself does not say. But both ends of a connection within one host are sockets of its kernel,
which knows the user of each: it answers for one connection by netlink (``sock_diag(7)``), and has
them all in ``/proc/net/tcp``, which takes it some 10 ms to write.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from functools import cache

from ..base import times

#: Host and port.
Address = tuple[str, int]

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_ESTABLISHED = 1
#: A request for one socket: family, protocol, two unused, states; ports, addresses, interface,
#: and a cookie that stands for any (linux/inet_diag.h).
_REQUEST = struct.Struct("=BBBBI2s2s16s16sI8s")
_HEADER = struct.Struct("=IHHII")
#: Of the answer: family, state, two unused, own and other port; then, after the addresses, the
#: interface, the cookie and three counters, the user and the number of the file.
_ANSWER = struct.Struct("=BBBB2s2s")
_USER, _USER_AT = struct.Struct("=II"), 64


class Unknown(Exception):
    """The system does not say whose process it is."""


def is_own(connection: socket.socket) -> bool:
    """Return whether a connection is with a process of this user, or with another host.

    A connection that has ended in the meantime, from either side, is with nobody.
    """
    own = os.geteuid()
    if connection.family == socket.AF_UNIX:
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return bool(struct.unpack("3i", packed)[1] == own)
    try:
        here, there = connection.getsockname(), connection.getpeername()
        if not _lives(connection):  # looked at first: an end that has gone is nobody's
            return False
        user = find_user(there[:2], here[:2])
        # Once more: until here, the addresses stood for this connection and no later one.
        return (not is_local(there[0]) if user is None else user == own) and _lives(connection)
    except (OSError, Unknown):
        return False


def _lives(connection: socket.socket) -> bool:
    """Return whether neither end of a connection has been closed."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return bool(state == _ESTABLISHED)


def find_user(own: Address, other: Address) -> int | None:
    """Return the user of this host's socket with these addresses, None if it has none, or if
    nobody has accepted the connection there: the kernel gives such a one to root.

    Raises
    ------
    Unknown
        If the system does not say.
    """
    ends = [(ipaddress.ip_address(host.partition("%")[0]), port) for host, port in (own, other)]
    plain = [(getattr(host, "ipv4_mapped", None) or host, port) for host, port in ends]
    find = _ask if _answers() else _read_tables
    return find(plain[0], plain[1])


@cache
def _answers() -> bool:
    """Return whether this system's kernel answers questions for one socket."""
    with (
        contextlib.suppress(OSError),
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as probe,
    ):
        ends = [(ipaddress.ip_address(h), p) for h, p in (probe.getsockname(), probe.getpeername())]
        return _ask(ends[0], ends[1]) == os.geteuid()
    return False


def is_local(host: str) -> bool:
    """Return whether an address is one of this host's: only such a one can be bound."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address) if mapped else host, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


_End = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]


def _ask(own: _End, other: _End) -> int | None:
    """Ask for one socket, None if there is none (or the kernel does not answer at all)."""
    body = _REQUEST.pack(
        socket.AF_INET if own[0].version == 4 else socket.AF_INET6,
        socket.IPPROTO_TCP,
        0,
        0,
        0xFFFFFFFF,
        struct.pack("!H", own[1]),
        struct.pack("!H", other[1]),
        own[0].packed,
        other[0].packed,
        0,
        b"\xff" * 8,
    )
    size = _HEADER.size + len(body)
    header = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as line:
        line.settimeout(times.SOCKETS_LISTED.seconds())
        line.send(header + body)
        answer = line.recv(8192)
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    _, state, _, _, _, there = _ANSWER.unpack_from(answer, _HEADER.size)
    # Where there is no such connection, it answers with the socket that listens at that port.
    if state != _ESTABLISHED or there != struct.pack("!H", other[1]):
        return None
    user, file = _USER.unpack_from(answer, _HEADER.size + _USER_AT)
    return int(user) if file else None


def _read_tables(own: _End, other: _End) -> int | None:
    if not os.path.exists("/proc/self/net/tcp"):
        raise Unknown
    for row in table("self"):
        ends = [(ipaddress.ip_address(host), port) for host, port in map(read_address, row[1:3])]
        if ends == [own, other] and int(row[3], 16) == _ESTABLISHED:
            return int(row[7]) if int(row[9]) else None
    return None


def table(process: int | str) -> Iterator[list[str]]:
    """Yield the rows of ``/proc/net/tcp`` and ``tcp6`` in a process's network, but for those of
    sockets that listen: both addresses are columns 1 and 2, then state (3), user (7), inode (9)."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{process}/net/{name}") as lines:
            next(lines)
            yield from (row for row in map(str.split, lines) if not row[2].endswith(":0000"))


def read_address(text: str) -> Address:
    """Read an address as the kernel writes it: words of 32 bits in the machine's order."""
    words, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(words[i : i + 8], 16)) for i in range(0, len(words), 8))
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return plain(socket.inet_ntop(family, packed), int(port, 16))


def plain(host: str, port: int) -> Address:
    """Write an IPv4 address the same way whether its socket is IPv4 or IPv6."""
    return host.removeprefix("::ffff:"), port
