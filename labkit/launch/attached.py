"""Reach the children of a warm process that some other process, or object, owns.

What is needed lies in the private folder of the warm process: a link per child, whose target is
its process id, and its log. Only the same user can enter it, and only while the owner lives.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import times
from .warm_process import log_file, pid_file, read_log


def identify(pid: int, folder: Path) -> dict[str, Any]:
    """Describe a warm process so that another process finds it again, as :meth:`find` needs it."""
    return {
        "host": socket.gethostname(),
        "pid": pid,
        "started": _start_ticks(pid),
        "folder": str(folder),
    }


class AttachedWarmProcess:
    """A warm process seen from outside: signals, logs and ends of its children, by process id."""

    def __init__(self, pid: int, root: Path) -> None:
        self.pid = pid
        self.root = root

    @classmethod
    def find(cls, about: Mapping[str, Any]) -> AttachedWarmProcess | None:
        """Find the warm process that :func:`identify` described, None if it is not there."""
        if about["host"] != socket.gethostname():
            return None
        pid, root = int(about["pid"]), Path(about["folder"])
        # Process ids are used again: the one that is meant started at that moment.
        if about["started"] is None or _start_ticks(pid) != about["started"] or not root.is_dir():
            return None
        return cls(pid, root)

    def child(self, name: str) -> int | None:
        """Return the process id of a child, None if it has ended or was not forked yet."""
        try:
            pid = int(os.readlink(pid_file(self.root, name)))
        except (OSError, ValueError):
            return None
        # If the warm process was killed, the link stays, and the process id is used again.
        return pid if pid and _parent(pid) == self.pid else None

    def is_there(self, name: str) -> bool:
        """Tell whether a child runs or is still to be forked."""
        if self.child(name) is not None:
            return True
        return self.root.is_dir() and not os.path.lexists(pid_file(self.root, name))

    def signal(self, name: str, signum: int) -> None:
        """Send a signal to a child, if it runs."""
        pid = self.child(name)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    def end(self, names: Sequence[str], patience: float | None = None) -> None:
        """End some children: SIGTERM, after ``patience`` seconds (``times.TERMINATED`` if
        None) SIGKILL, and wait for it."""
        told: set[str] = set()
        kill = time.monotonic() + (times.TERMINATED.seconds() if patience is None else patience)
        while running := [name for name in names if self.is_there(name)]:
            now = time.monotonic()
            if now > kill + times.KILLED.seconds():
                return
            for name in running:
                if now > kill:
                    self.signal(name, signal.SIGKILL)
                elif name not in told and self.child(name) is not None:
                    told.add(name)
                    self.signal(name, signal.SIGTERM)
            time.sleep(times.FOREIGN_END_LOOK)

    def log_file(self, name: str) -> Path:
        """Name the file that collects what a child writes outside Python's own streams."""
        return log_file(self.root, name)

    def output(self, name: str, limit: int = 4000) -> str:
        """Return the last ``limit`` characters of a child's log."""
        return read_log(self.root, name, limit)


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` that follow the name, [] if there is no process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] == "Z" else fields


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the system did."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None
