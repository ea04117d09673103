"""End processes with the one that started them: what a process can ask of Linux for that."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from .. import times

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
_libc = ctypes.CDLL(None, use_errno=True)


def set_name(name: str) -> None:
    """Let ``ps`` and ``top`` call this process so (15 letters at most): a forked one has the
    command line of the one that it comes from."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_NAME, name.encode())


def end_with_parent(parent: int) -> None:
    """Ask the system to kill this process when the one that started it ends, where it can."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


def leave(code: int = 0) -> NoReturn:
    """End this process at once: Python would tear torch down first, for up to half a second of a
    core in which whoever waits for the end would wait."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def end_by_signal(signum: int) -> None:
    """End this process by a signal, as if it handled none."""
    with contextlib.suppress(OSError):  # SIGKILL and SIGSTOP have no handlers
        signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def inherit_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, where the system can."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_descendants(within: times.Bound = times.DESCENDANTS_KILLED) -> None:
    """Kill every descendant: children first, then what falls to this process as their heir."""
    deadline = time.monotonic() + within.seconds()
    while (children := _children()) and time.monotonic() < deadline:
        for pid in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(times.DESCENDANTS_LOOK)


def _children() -> list[int]:
    """List the process ids of our children, orphans that were handed to us included."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    try:
        return [int(pid) for pid in listed.read_text().split()]
    except FileNotFoundError:  # another system than Linux
        return []
