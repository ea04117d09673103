"""Ask a zygote for a warm process: both ends of the line, and what comes of it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from .. import trust
from ..wire import peers
from . import surroundings

_log = logging.getLogger(__name__)

#: Names the folder of the zygote to the processes that may ask it.
VARIABLE = "LABKIT_ZYGOTE"
#: The names of its socket in there, and of the file that says that all is imported.
SOCKET, READY = "zygote", "ready"
#: The length of a message, in front of it.
LENGTH = struct.Struct("=I")
#: Seconds for an answer. It takes some 20 ms; one that is stopped or swapped out may be late.
ANSWER_SECONDS = 2.0
#: Seconds for one that still imports, which is ahead of whoever would begin with it now.
IMPORT_SECONDS = 20.0
#: Seconds for news of how a process has ended that has ended.
NEWS_SECONDS = 1.0


class ForkedProcess:
    """A process that a zygote forked for us: what ``subprocess.Popen`` has for one of our own.

    How it ended is known from the zygote; where that has ended too, it counts as killed. Safe to
    use from several threads.
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
            if self._has_ended(0.2 if left is None else min(left, 0.2)):
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
                    self._line.settimeout(NEWS_SECONDS)
                    code = receive(self._line, [])["code"]
                os.close(self._pidfd)
                self.returncode = code


def ask(
    argv: Sequence[str], environment: Mapping[str, str], files: Sequence[int]
) -> ForkedProcess | None:
    """Ask the zygote of this process for a warm process; None if there is none, or not for us.

    Parameters
    ----------
    argv
        What ``fork_server`` is started with, but for the first number.
    environment
        Its variables.
    files
        Its end of the line to its owner, and its log.

    Raises
    ------
    TimeoutError
        If the zygote is there and does not answer: it may still do what was asked for.
    """
    folder = os.environ.get(VARIABLE, "")
    if not folder or trust.why_not(folder):
        return None
    line = socket.socket(socket.AF_UNIX)
    taken: list[int] = []
    try:
        line.settimeout(ANSWER_SECONDS if Path(folder, READY).exists() else IMPORT_SECONDS)
        line.connect(str(Path(folder) / SOCKET))
        if not peers.is_own(line):
            return None
        request = {
            "argv": list(argv),
            "environment": dict(environment),
            "surroundings": surroundings.describe(),
            "settings": surroundings.describe_settings(),
        }
        send(line, request, files)
        answer = receive(line, taken)
        if "pid" in answer:
            process = ForkedProcess(answer["pid"], taken.pop(), line)
            line = socket.socket()  # the other one is the process's
            return process
        _log.info("the zygote has refused: %s", answer["refused"])
    except TimeoutError:
        _log.info("the zygote does not answer")
        raise
    except (OSError, EOFError) as error:  # it is not there, or not ready
        _log.debug("no zygote: %s", error)
    finally:
        line.close()
        for file in taken:
            os.close(file)
    return None


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
