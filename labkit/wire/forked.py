"""Ask another process to fork for us: messages with files over a unix socket, and what is forked.

Whoever forks (``launch.forker``) listens at a unix socket. A process that wants a child connects
there and sends one request, JSON behind its length, with files. The owner of such a process has a
line to it, on which requests have names; there the pidfd is left out.

    -> {"name": "3", ...}
    <- {"name": "3", "pid": 4711}, with a pidfd as its file;  or {"name": "3", "refused": "why"}
    <- {"name": "3", "code": -9}                                (once it has ended)
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from subprocess import TimeoutExpired
from typing import Any

from .. import times

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
                    code = receive(self._line, [])["code"]
                os.close(self._pidfd)
                self.returncode = code


def ask(
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
        send(line, request, files)
        answer = receive(line, taken)
        if "pid" not in answer:
            raise Refused(answer["refused"])
        process = ForkedProcess(answer["pid"], taken.pop(), line)
        line = socket.socket()  # the other one is the process's
        return process
    finally:
        line.close()
        for file in taken:
            os.close(file)


def send(line: socket.socket, message: Mapping[str, Any], files: Sequence[int] = ()) -> None:
    """Send a message, with files, over a unix socket."""
    data = json.dumps(message).encode()
    data = LENGTH.pack(len(data)) + data
    sent = socket.send_fds(line, [data], list(files))
    line.sendall(data[sent:])


def receive(line: socket.socket, files: list[int], most: int = 1) -> dict[str, Any]:
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
