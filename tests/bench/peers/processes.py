"""Look at all processes of a peer from outside: their processor time, and on what they listen."""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Iterable

import psutil

#: Number of a process's own clock on Linux: the scheduler's nanoseconds, with all threads that
#: have ended (clock_getcpuclockid(3)).
SCHEDULED = 2


def processor_time(processes: Iterable[psutil.Process]) -> float:
    """Return the seconds that processes, and children that they have waited for, ran."""
    return sum(map(time_of, processes))


def time_of(process: psutil.Process) -> float:
    """Return the seconds of one process; 0 if it has gone."""
    try:
        used = process.cpu_times()
        try:
            own = time.clock_gettime((~process.pid << 3) | SCHEDULED)
        except OSError:
            own = used.user + used.system
    except psutil.Error:
        return 0.0
    return own + used.children_user + used.children_system


def listeners(processes: Iterable[psutil.Process]) -> list[str]:
    """Return the TCP addresses on which processes listen, each once: ``127.0.0.1:4711``."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    found.add(f"{connection.laddr.ip}:{connection.laddr.port}")
    return sorted(found)


def off_loopback(addresses: Iterable[str]) -> list[str]:
    """Return those addresses that other machines may reach."""
    return [address for address in addresses if not on_loopback(address)]


def on_loopback(address: str) -> bool:
    """Return whether an address with a port, as ``listeners`` writes it, is this machine's
    alone."""
    ip = ipaddress.ip_address(address.rpartition(":")[0])
    mapped = getattr(ip, "ipv4_mapped", None)  # whose is_loopback is False before Python 3.13
    return (mapped or ip).is_loopback
