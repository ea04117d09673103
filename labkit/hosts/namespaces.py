"""Find, kill and clean up what lives in network namespaces."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Sequence

import psutil

from ..base import times
from ..base.errors import LabError
from . import commands


def hold_open(pid: int) -> int:
    """Return a descriptor of a process' network namespace.

    While it is open, no other namespace gets the number by which ``processes`` finds this one.
    """
    return os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)


def processes(namespaces: Iterable[int]) -> list[psutil.Process]:
    """List the processes in network namespaces, but never those in this process' own."""
    numbers = {os.fstat(namespace).st_ino for namespace in namespaces}
    numbers -= {os.stat("/proc/self/ns/net").st_ino}
    found = []
    for pid in psutil.pids() if numbers else []:
        with contextlib.suppress(OSError, psutil.Error):
            if os.stat(f"/proc/{pid}/ns/net").st_ino in numbers:
                found.append(psutil.Process(pid))
    return found


def kill(find: Callable[[], Sequence[psutil.Process]]) -> None:
    """Kill what ``find`` returns until it finds nothing more.

    Raises
    ------
    LabError
        If something is still there after ``times.HOST_STEP``.
    """
    deadline = time.monotonic() + times.HOST_STEP
    while found := find():
        if time.monotonic() > deadline:
            raise LabError(f"These processes cannot be killed: {[p.pid for p in found]}.")
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(times.HOST_LOOK)


def clean(namespaces: Sequence[int], link: str, subnet: str) -> None:
    """End everything in the namespaces; remove the link to this machine, if there is one."""
    try:
        kill(lambda: processes(namespaces))
    finally:
        if link:
            unlink(link, subnet)


def unlink(link: str, subnet: str) -> None:
    """Remove a link of this machine and the route beside it, as far as they are there."""
    for command in (f"link delete {link}", f"route delete {no_way_out(subnet)}"):
        with contextlib.suppress(LabError):  # removed before, or never made
            commands.do([commands.find("ip"), *command.split()])


def no_way_out(subnet: str) -> str:
    """Return the route for what is sent to a host that has gone, so that no other link gets it."""
    return f"unreachable {subnet}/24 metric 9999"
