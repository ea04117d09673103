"""Fork for whoever asks: wait for requests and ends, reap, and turn children into their jobs.

One class, started with another job each: the warm process of a lab (``fork_server``), the zygote
(``zygote``), the owner of one torchrun (``torchrun_owner``). Requests come on the owner's line, or
each on one of its own at a unix socket; answers and news go back there, as ``wire.processes`` has
it.

Nothing here may start a thread or touch CUDA before a fork: a forked child has only the thread
that forked, and a CUDA context does not survive a fork.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..base import times
from ..guard import peers
from ..wire.processes import receive_message, send_message

#: What a child does. It runs outside every frame of the process that has forked it.
Job = Callable[[], Any]


class Request(NamedTuple):
    """Something that is to be forked."""

    line: socket.socket  #: where answer and news go
    content: dict[str, Any]
    files: list[int]


class Forker(ABC):
    """Serve requests until whoever owns this process goes away.

    Parameters
    ----------
    owner
        A line whose other end the owner holds.
    """

    #: How many files come with each request.
    files = 2

    def __init__(self, owner: socket.socket) -> None:
        self.pid = os.getpid()
        self.owner = owner
        self.over = False  #: whether nobody needs this process any more
        self.backlog: list[Request] = []
        #: pid -> the name of a child, and who hears of its end, if anybody
        self.children: dict[int, tuple[str, socket.socket | None]] = {}
        self._ends = [owner]
        owner.settimeout(times.FORK_REQUEST.seconds())
        self.selector = selectors.DefaultSelector()
        self.selector.register(owner, selectors.EVENT_READ, self.hear_owner)
        woken, wake = socket.socketpair()
        for end in (woken, wake):
            end.setblocking(False)
            self._ends.append(end)
        self.selector.register(woken, selectors.EVENT_READ, lambda: woken.recv(4096))
        # A dead child wakes the selector through this descriptor.
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def listen(self, place: Path) -> None:
        """Take requests at the path of a unix socket, too."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(place))
        listener.listen(64)
        self._ends.append(listener)
        self.selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))

    def serve(self) -> Job | None:
        """Serve until it is over. Returns None then, or a child's job in a child."""
        while True:
            self.reap()
            while self.backlog:
                if job := self.fork(self.backlog.pop(0)):
                    return job
            if self.over:
                return None
            self.receive(None)

    # -- requests ---------------------------------------------------------------------------

    def receive(self, timeout: float | None) -> None:
        """Wait for requests or dead children, up to ``timeout`` seconds; fill ``backlog``."""
        for key, _ in self.selector.select(timeout):
            key.data()

    def hear_owner(self) -> None:
        """Read what the owner sends; its end, if it has gone."""
        if not self._read(self.owner):
            self.over = True

    def _accept(self, listener: socket.socket) -> None:
        line, _ = listener.accept()
        line.settimeout(times.FORK_REQUEST.seconds())
        if not self._read(line):
            line.close()

    def _read(self, line: socket.socket) -> bool:
        """Read one request from a line; return whether there was one."""
        files: list[int] = []
        try:
            self.backlog.append(Request(line, receive_message(line, files, self.files), files))
        except (OSError, EOFError, ValueError):  # whoever asked has gone, or it is no request
            _close(files)
            return False
        return True

    # -- children ---------------------------------------------------------------------------

    def fork(self, request: Request) -> Job | None:
        """Fork for a request and answer; the child's job in the child."""
        line, content, files = request
        try:
            reason = self._check(request)
            pid = -1 if reason else os.fork()
        except (LookupError, TypeError):
            reason, pid = "it is no request", -1
        except OSError as error:
            reason, pid = f"it cannot fork ({error.strerror})", -1
        if pid == 0:
            line.close()
            self.leave_behind()
            return self.job(content, files)
        with contextlib.suppress(OSError):  # who asked has gone
            name = content.get("name", "") if isinstance(content, dict) else ""
            if reason:
                send_message(line, {"name": name, "refused": reason})
            else:
                self.children[pid] = (name, line)
                pidfds = [] if line is self.owner else [os.pidfd_open(pid)]
                files += pidfds
                send_message(line, {"name": name, "pid": pid}, pidfds)
        _close(files)
        if reason and line is not self.owner:
            line.close()
        return None

    def _check(self, request: Request) -> str:
        if request.line is not self.owner and not peers.is_own(request.line):
            return "it comes from somebody else"
        if len(request.files) != self.files:
            return "it is no request"
        return self.refusal(request.content)

    def leave_behind(self) -> None:
        """Become a process of its own, in a child: what this class has opened is closed."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.selector.close()
        lines = [line for _, line in self.children.values() if line is not None]
        for end in (*self._ends, *lines, *(request.line for request in self.backlog)):
            end.close()

    def reap(self) -> None:
        """Collect what has ended, and say so to who asked for it."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid not in self.children:  # what one of them has left behind
                continue
            name, line = self.children.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            self.note_end(pid, code)
            with contextlib.suppress(OSError):
                if line is not None:
                    send_message(line, {"name": name, "code": code})
                    if line is not self.owner:
                        line.close()

    # -- what differs -----------------------------------------------------------------------

    def refusal(self, request: Mapping[str, Any]) -> str:
        """Return why a request is not for this process, "" if it is."""
        return ""

    def note_end(self, pid: int, code: int) -> None:  # noqa: B027 (most have nothing to do)
        """Record that a child has ended."""

    @abstractmethod
    def job(self, request: Mapping[str, Any], files: list[int]) -> Job:
        """Turn a child into what was asked for, but for its work, which is returned."""


def run(job: Job | None) -> None:
    """Do what a child is there for, outside every frame and handler of who has forked it."""
    while callable(job):
        job = job()


def close_others(*kept: int) -> None:
    """Close all files of this process but its standard streams and these."""
    with contextlib.suppress(FileNotFoundError):  # another system than Linux
        for number in [int(name) for name in os.listdir("/proc/self/fd")]:
            if number > 2 and number not in kept:
                with contextlib.suppress(OSError):  # of the list itself
                    os.close(number)


def write_to(out: int, err: int) -> None:
    """Make these files be stdout and stderr of this process."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    _close({out, err})


def _close(files: Any) -> None:
    for file in files:
        os.close(file)
