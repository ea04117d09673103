"""Look at the machine this process runs on, without a driver and without torch."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path

DEVICES = Path("/dev")
#: From which the system takes the port of whoever asks for none, or connects.
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Where that range begins on Linux, and on no system earlier, unless somebody has set it.
FIRST = 32_768
#: How many ports below it are free to be chosen, and how many are tried.
BELOW, TRIES = 5_000, 100


def count_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_gpu() -> bool:
    """Tell whether there is a device of an NVIDIA GPU, whatever its driver can do."""
    return any(DEVICES.glob("nvidia[0-9]*"))


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of ``host`` for a program that is told one and listens later.

    It is below the range from which the system takes ports by itself, as for each connection that
    somebody opens: one of those could have it before the program does. Where nothing is free there,
    the system chooses.

    Raises
    ------
    OSError
        If there is none.
    """
    import random

    first = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else FIRST
    below = range(max(1024, first - BELOW), first)
    tried = random.SystemRandom().sample(below, min(TRIES, len(below)))
    for port in (*tried, 0):
        with contextlib.suppress(OSError), socket.create_server((host, port)) as server:
            return int(server.getsockname()[1])
    raise OSError(errno.EADDRINUSE, f"there is no free port of {host}")
