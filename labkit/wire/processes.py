"""What processes ask the system: to end with others, to be forked by another, for a port."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import TimeoutExpired
from types import FunctionType
from typing import Any, NoReturn

from ..base import times

# -- the machine, without a driver and without torch ----------------------------------------------

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
    """Return whether there is a device of an NVIDIA GPU, whatever its driver can do."""
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


# -- end with the process that started this one ---------------------------------------------------

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
_libc = ctypes.CDLL(None, use_errno=True)


def set_name(name: str) -> None:
    """Make ``ps`` and ``top`` call this process so (15 letters at most): a forked one has the
    command line of the one that it comes from."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_NAME, name.encode())


def end_with_parent(parent: int) -> None:
    """Ask the system to kill this process when the one that started it ends, where it can."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


def hide() -> None:
    """Keep other processes of this user from this one's memory and open files (ptrace, /proc)."""
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_DUMPABLE, 0)


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


# -- ask another process to fork for us -----------------------------------------------------------

# Whoever forks (``launch.forker``) listens at a unix socket. A process that wants a child connects
# there and sends one request, JSON behind its length, with files. The owner of such a process has a
# line to it, on which requests have names; there the pidfd is left out.
#     -> {"name": "3", ...}
#     <- {"name": "3", "pid": 4711}, with a pidfd as its file;  or {"name": "3", "refused": "why"}
#     <- {"name": "3", "code": -9}                                (once it has ended)

#: The length of a message, in front of it.
LENGTH = struct.Struct("=I")


class Refused(Exception):
    """It does not fork for us; the reason."""


class ForkedProcess:
    """A process that another one forked for us: what ``subprocess.Popen`` has for one of our own.

    How it ended is known from the one that forked it; where that has ended too, it counts as
    killed. Safe to use from several threads.
    """

    def __init__(self, pid: int, pidfd: int, line: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._pidfd = pidfd
        self._line = line
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return how it ended, as ``Popen.poll`` does; None while it runs."""
        try:
            return self.wait(0)
        except TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raise ``subprocess.TimeoutExpired`` if it takes longer."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            # Bounded: another thread that waits may close the file.
            if self._has_ended(times.FORKED_LOOK if left is None else min(left, times.FORKED_LOOK)):
                self._note_end()
            elif left == 0:
                raise TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self.returncode

    def kill(self) -> None:
        """Kill it."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self.returncode is None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _has_ended(self, seconds: float) -> bool:
        poll = select.poll()
        with self._lock:
            if self.returncode is not None:
                return True
            poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _note_end(self) -> None:
        with self._lock:
            if self.returncode is None:
                code = -int(signal.SIGKILL)
                with contextlib.suppress(OSError, EOFError), self._line:
                    self._line.settimeout(times.EXIT_NEWS.seconds())
                    code = receive_message(self._line, [])["code"]
                os.close(self._pidfd)
                self.returncode = code


def ask_to_fork(
    place: str, request: Mapping[str, Any], files: Sequence[int], seconds: float
) -> ForkedProcess:
    """Ask who listens at a unix socket, in a folder that nobody else can write to, to fork; wait so
    many seconds for an answer.

    Raises
    ------
    Refused
        With the reason.
    TimeoutError
        If there is no answer: it may still do what was asked for.
    OSError, EOFError
        If nobody is there.
    """
    from ..guard import peers

    taken: list[int] = []
    line = socket.socket(socket.AF_UNIX)
    try:
        line.settimeout(seconds)
        line.connect(place)
        if not peers.is_own(line):
            raise Refused("it is somebody else's")
        send_message(line, request, files)
        answer = receive_message(line, taken)
        if "pid" not in answer:
            raise Refused(answer["refused"])
        process = ForkedProcess(answer["pid"], taken.pop(), line)
        line = socket.socket()  # the other one is the process's
        return process
    finally:
        line.close()
        for file in taken:
            os.close(file)


def send_message(
    line: socket.socket, message: Mapping[str, Any], files: Sequence[int] = ()
) -> None:
    """Send a message, with files, over a unix socket."""
    data = json.dumps(message).encode()
    data = LENGTH.pack(len(data)) + data
    sent = socket.send_fds(line, [data], list(files))
    line.sendall(data[sent:])


def receive_message(line: socket.socket, files: list[int], most: int = 1) -> dict[str, Any]:
    """Receive a message; its files, ``most`` at most, are added to ``files``, to be closed.

    Raises
    ------
    EOFError
        If the other end has gone.
    """
    data = b""
    wanted = LENGTH.size
    while len(data) < wanted:
        piece, found, _, _ = socket.recv_fds(line, wanted - len(data), most)
        files += found
        if not piece:
            raise EOFError
        data += piece
        if len(data) == LENGTH.size == wanted:
            wanted += LENGTH.unpack(data)[0]
    message: dict[str, Any] = json.loads(data[LENGTH.size :])
    return message


# -- let the processes that a cell starts have what cells have defined ----------------------------

# ``mp.spawn`` and ``mp.Process`` send the name of a function and of its module, which the new
# process imports. Cells have no file: their functions and classes are sent whole.


def send_whole() -> None:
    """Begin to do so in this process, and in those that it starts so."""
    from multiprocessing.reduction import ForkingPickler

    ForkingPickler.reducer_override = _reduce  # type: ignore[method-assign]


def load(data: bytes) -> Any:
    """Load what was sent, in the new process."""
    import cloudpickle

    send_whole()
    return cloudpickle.loads(data)


def _reduce(pickler: object, value: Any) -> Any:
    import cloudpickle

    is_definition = isinstance(value, FunctionType | type)
    if is_definition and value.__module__ == "__main__" and not _has_file():
        return load, (cloudpickle.dumps(value),)
    return NotImplemented


def _has_file() -> bool:
    """Return whether this process runs a script, which others can import."""
    return getattr(sys.modules["__main__"], "__file__", None) is not None
