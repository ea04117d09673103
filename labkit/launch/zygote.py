"""Keep one process that has imported torch, and fork the warm process of each lab from it.

Runs as ``python -m labkit.launch.zygote FD FOLDER PRELOAD...``: FD is one end of a socket pair
whose other end the owner holds (a JupyterLab server, a run of tests), FOLDER a private one to
remove at the end. It listens at the unix socket ``FOLDER/zygote``, and answers when all is
imported. A process that wants a warm process connects there and sends one request, JSON behind
its length, with two files: the warm process's end of the line to its owner, and its log.

    -> {"argv": [...], "environment": {...}, "surroundings": {...}, "settings": {...}}
    <- {"pid": 4711}, with a pidfd as its file;  or {"refused": "why"}
    <- {"code": -9}                                             (once it has ended)

What is forked belongs to whoever asked for it, and lives on when this process ends. It is refused
to a process in which it would have come out differently (``surroundings``).

The name is Android's for a process of this kind. Nothing here may start a thread or touch CUDA:
see ``fork_server``.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..wire import peers
from ..wire.family import leave
from . import fork_server, surroundings
from .zygote_line import READY, SOCKET, receive, send

#: Seconds for the rest of a request that has begun, and for an answer to be taken.
PATIENCE = 2.0


class Zygote:
    """Serve requests for warm processes until the owner goes away."""

    def __init__(self, owner: socket.socket, folder: Path) -> None:
        self.owner = owner
        self.folder = folder
        self.environment = dict(os.environ)
        self.surroundings = surroundings.describe()  # before anything is imported
        self.waiting: dict[int, socket.socket] = {}  # pid -> who hears of its end
        self.selector = selectors.DefaultSelector()
        self._wake_r, self._wake_w = socket.socketpair()
        for end in (self._wake_r, self._wake_w):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake_w.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def listen(self) -> None:
        """Be there for requests."""
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.folder / SOCKET))
        self.listener.listen(64)
        for source in (self.owner, self.listener, self._wake_r):
            self.selector.register(source, selectors.EVENT_READ)

    def serve(self) -> Callable[[], Any] | None:
        """Serve until the owner goes away. Returns None then, or a child's job in a child."""
        while True:
            self.reap()
            ready = [key.fileobj for key, _ in self.selector.select()]
            if self.owner in ready:
                return None
            with contextlib.suppress(BlockingIOError):
                self._wake_r.recv(4096)
            if self.listener in ready and (job := self.receive()):
                return job

    def receive(self) -> Callable[[], Any] | None:
        """Take a request, fork for it and answer; the child's job in the child."""
        line, _ = self.listener.accept()
        files: list[int] = []
        parent = os.getpid()
        try:
            line.settimeout(PATIENCE)
            request = receive(line, files, 2)
            if why := self._why_not(line, request, files):
                send(line, {"refused": why})
                return None
            pid = os.fork()
            if pid == 0:
                line.close()
                return self._become(request, files)
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
        """Say why a request is not for this process, "" if it is."""
        if not peers.is_own(line) or len(files) != 2:
            return "it comes from somebody else"
        for what, own in self.surroundings.items():
            if request["surroundings"].get(what) != own:
                return f"another {what} there"
        names = surroundings.differing(self.environment, request["environment"])
        return f"other variables there: {', '.join(names)}" if names else ""

    def _become(self, request: dict[str, Any], files: list[int]) -> Callable[[], Any]:
        """Turn a child into a warm process, but for its work."""
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
        keep, log = files
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        surroundings.take_over(request["settings"], request["environment"])
        time.tzset()
        tempfile.tempdir = None
        _use_threads(request["environment"].get("OMP_NUM_THREADS", ""))
        return lambda: fork_server.main([str(keep), *request["argv"]])

    def reap(self) -> None:
        """Collect what has ended, and say so to who asked for it."""
        for pid, line in list(self.waiting.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self.waiting[pid]
                with contextlib.suppress(OSError), line:
                    send(line, {"code": os.waitstatus_to_exitcode(status)})


def _use_threads(number: str) -> None:
    """Give operations so many threads, as the variable would have before torch was imported."""
    torch = sys.modules.get("torch")
    if torch is not None and number:
        torch.set_num_threads(int(number.partition(",")[0]))


def main(argv: list[str]) -> Callable[[], Any]:
    """Serve; return in a child only, with its job."""
    number, folder, *preload = argv
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the owner's terminal
    zygote = Zygote(socket.socket(fileno=int(number)), Path(folder))
    zygote.listen()
    fork_server.import_shared(preload)
    gc.collect()
    gc.freeze()
    (zygote.folder / READY).touch()
    if job := zygote.serve():
        return job
    shutil.rmtree(folder, ignore_errors=True)
    leave()


if __name__ == "__main__":
    # A child's job runs from here, and a rank's outside the frames of its warm process, too.
    fork_server.run(main(sys.argv[1:]))
