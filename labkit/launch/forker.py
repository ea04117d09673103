"""Fork for whoever asks at a unix socket; the asking end is ``wire.forked``.

Nothing here may start a thread or touch CUDA before a fork: a forked child has only the thread
that forked, and a CUDA context does not survive a fork.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import times
from ..wire import peers
from ..wire.forked import receive, send
from . import cpp_log

#: What a child does. It runs outside every frame of the process that has forked it.
Job = Callable[[], Any]


class Forker(ABC):
    """Serve requests until somebody who owns this process goes away.

    Parameters
    ----------
    owner
        Whose other end the owner holds.
    """

    def __init__(self, owner: socket.socket) -> None:
        self.owner = owner
        self.listener = socket.socket(socket.AF_UNIX)
        self.waiting: dict[int, socket.socket] = {}  # pid -> who hears of its end
        self.selector = selectors.DefaultSelector()
        self._wake_r, self._wake_w = socket.socketpair()
        for end in (self._wake_r, self._wake_w):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake_w.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def listen(self, place: Path) -> None:
        """Be there for requests, at the path of a unix socket."""
        self.listener.bind(str(place))
        self.listener.listen(64)
        for source in (self.owner, self.listener, self._wake_r):
            self.selector.register(source, selectors.EVENT_READ)

    def serve(self) -> Job | None:
        """Serve until the owner goes away. Returns None then, or a child's job in a child."""
        while not self.is_over():
            self.reap()
            ready = [key.fileobj for key, _ in self.selector.select(self.look_seconds)]
            if self.owner in ready:  # closed, or about to be
                return None
            with contextlib.suppress(BlockingIOError):
                self._wake_r.recv(4096)
            if self.listener in ready and (job := self.receive()):
                return job
        return None

    def receive(self) -> Job | None:
        """Take a request, fork for it and answer; the child's job in the child."""
        line, _ = self.listener.accept()
        files: list[int] = []
        parent = os.getpid()
        try:
            line.settimeout(times.FORK_REQUEST.seconds())
            request = receive(line, files, 2)
            if why := self._why_not(line, request, files):
                send(line, {"refused": why})
                return None
            pid = os.fork()
            if pid == 0:
                line.close()
                self.leave_behind(files)
                return self.job(request, files)
            self.waiting[pid] = line
            process = os.pidfd_open(pid)
            files.append(process)
            send(line, {"pid": pid}, [process])
        except (OSError, EOFError, ValueError, LookupError):
            pass  # whoever asked has gone, or it is no request
        finally:
            if os.getpid() == parent:
                for file in files:
                    os.close(file)
                if line not in self.waiting.values():
                    line.close()
        return None

    def _why_not(self, line: socket.socket, request: dict[str, Any], files: list[int]) -> str:
        if not peers.is_own(line) or len(files) != 2:
            return "it comes from somebody else"
        return self.why_not(request)

    def leave_behind(self, files: list[int]) -> None:
        """Become a process of its own, in a child: none but these files stay open."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.selector.close()
        for end in (self.owner, self.listener, self._wake_r, self._wake_w, *self.waiting.values()):
            end.close()
        for number in [int(name) for name in os.listdir("/proc/self/fd")]:
            if number > 2 and number not in files:  # what locks the folder
                with contextlib.suppress(OSError):  # of the list itself
                    os.close(number)

    def reap(self) -> None:
        """Collect what has ended, and say so to who asked for it."""
        for pid, line in list(self.waiting.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self.waiting[pid]
                with contextlib.suppress(OSError), line:
                    send(line, {"code": os.waitstatus_to_exitcode(status)})

    # -- what differs -----------------------------------------------------------------------

    #: Seconds between two looks at ``is_over``; None: each time something has happened.
    look_seconds: float | None = None

    def is_over(self) -> bool:
        """Tell whether nobody needs this process any more, though the owner is there."""
        return False

    @abstractmethod
    def why_not(self, request: Mapping[str, Any]) -> str:
        """Say why a request is not for this process, "" if it is."""

    @abstractmethod
    def job(self, request: Mapping[str, Any], files: list[int]) -> Job:
        """Turn a child into what was asked for, but for its work, which is returned."""


def write_to(out: int, err: int) -> None:
    """Let these files be stdout and stderr of this process."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    for file in {out, err}:
        os.close(file)


def adapt(environment: Mapping[str, str]) -> None:
    """Do what reading these variables at the start of this process would have done."""
    time.tzset()
    tempfile.tempdir = None
    torch, threads = sys.modules.get("torch"), environment.get("OMP_NUM_THREADS", "")
    if torch is not None and threads:
        torch.set_num_threads(int(threads.partition(",")[0]))
    if cpp_log.VARIABLE in environment:
        cpp_log.read_again()
