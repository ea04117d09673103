"""Fork engines from one process that has already imported torch.

Runs as ``python -m labkit.launch.fork_server FD ROOT PRELOAD...``: FD is one end of a socket
pair whose other end the owner (a notebook kernel) holds, ROOT a private folder to remove at the
end. Requests and events are JSON, one object a line:

    -> {"op": "fork", "name": "3", "kind": "engine", "argv": [...], "env": {...}, "log": "..."}
    -> {"op": "signal", "name": "3", "signal": 15}
    <- {"event": "started", "name": "3", "pid": 4711}
    <- {"event": "exited", "name": "3", "pid": 4711, "code": -9}      (negative: a signal)
    <- {"event": "log", "text": "..."}                                (with LABKIT_LOG=debug)

The tree ends when the owner ends, however it ends: end of file on FD means that the owner is
gone, so every child is killed; and each child asks the kernel to be killed when this process
dies (``PR_SET_PDEATHSIG``). Being a subreaper, this process also inherits what a dead rank
leaves behind (data loader workers, a learner's subprocess) and ends that too.

Nothing here may start a thread or touch CUDA before the fork: a forked child has only the
thread that forked, and a CUDA context does not survive a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import times
from ..wire.family import end_descendants, end_with_parent, inherit_orphans, leave
from . import connection_guard

#: What a child runs, by kind: "module:function", called with the request's argv.
KINDS = {
    "controller": "labkit.launch.controller:main",
    "engine": "labkit.launch.engine:main",
    "call": "labkit.launch.fork_server:call",
}

#: What every engine imports while it starts: done once, here.
ENGINE_MODULES = (
    "ipyparallel.engine.app",
    "labkit.launch.engine",
    "IPython.core.completerlib",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "tornado.platform.asyncio",
    "tornado.queues",
)


def import_shared(preload: Sequence[str]) -> None:
    """Import all that is shared; what cannot be had is met again by who needs it."""
    importlib.import_module("ipyparallel.controller.app")
    import_without_debugger()
    for module in (*ENGINE_MODULES, *preload):
        with contextlib.suppress(Exception):
            importlib.import_module(module)


def import_without_debugger() -> None:
    """Import ipykernel's debugger as if debugpy were not installed.

    Engines cannot be debugged through ipyparallel, and debugpy is the slowest part of an
    engine's start. A learner's own ``import debugpy`` still works afterwards.
    """
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    importlib.import_module("ipykernel.debugger")
    del sys.modules["debugpy"]


def draw_anew() -> None:
    """Seed what a forked process has seeded in common with others; a fresh one draws its own seeds,
    too (``random`` sees to it by itself)."""
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    # Not by numpy's attribute, which imports the module where it is not: in each rank, for 10 ms.
    if random := sys.modules.get("numpy.random"):
        random.seed()


def call(argv: list[str]) -> None:
    """Call ``argv[0]`` ("module:function") with the rest of ``argv``."""
    _resolve(argv[0])(*argv[1:])


def _resolve(spec: str) -> Callable[..., Any]:
    module, _, function = spec.partition(":")
    return getattr(importlib.import_module(module), function)


class ForkServer:
    """Serve fork requests from one socket until the owner goes away."""

    def __init__(self, sock: socket.socket, root: Path) -> None:
        self.sock = sock
        self.root = root
        self.pids: dict[str, int] = {}  # name -> pid of our own children
        self.backlog: list[dict[str, Any]] = []
        self._buffer = b""
        self._owner_gone = False
        self._logs = os.environ.get("LABKIT_LOG", "").startswith("debug")
        self._wake_r, self._wake_w = socket.socketpair()
        for end in (self._wake_r, self._wake_w, sock):
            end.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(sock, selectors.EVENT_READ)
        self.selector.register(self._wake_r, selectors.EVENT_READ)
        # A dead child wakes the selector through this descriptor.
        signal.set_wakeup_fd(self._wake_w.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The owner decides when we end: a Ctrl-C in its terminal is not for us.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, *_: object) -> None:
        self._owner_gone = True

    # -- talking to the owner ---------------------------------------------------------------

    def send(self, **event: Any) -> None:
        data = json.dumps(event).encode() + b"\n"
        with contextlib.suppress(OSError):
            self.sock.settimeout(times.WARM_NEWS_TAKEN.seconds())
            self.sock.sendall(data)
        self.sock.setblocking(False)

    def log(self, text: str, *args: Any) -> None:
        """Let the owner log what happens here: our own stderr ends with our folder."""
        if self._logs:
            self.send(event="log", text=text % args)

    def receive(self, timeout: float | None) -> None:
        """Wait for requests or dead children, up to ``timeout`` seconds; fill ``backlog``."""
        for key, _ in self.selector.select(timeout):
            if key.fileobj is self._wake_r:
                with contextlib.suppress(BlockingIOError):
                    self._wake_r.recv(4096)
                continue
            try:
                data = self.sock.recv(1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                self._owner_gone = True
            self._buffer += data
            *lines, self._buffer = self._buffer.split(b"\n")
            self.backlog += [json.loads(line) for line in lines]

    # -- children ---------------------------------------------------------------------------

    def fork(self, request: dict[str, Any]) -> Callable[[], None] | None:
        """Fork a child for ``request``. Returns None here, the child's job in the child."""
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_child(request, parent)
            target = _resolve(KINDS[request["kind"]])
            return lambda: target(request["argv"])
        self.pids[request["name"]] = pid
        self.log("forked %s %s as process %d", request["kind"], request["name"], pid)
        self.send(event="started", name=request["name"], pid=pid)
        return None

    def _become_child(self, request: dict[str, Any], parent: int) -> None:
        end_with_parent(parent)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for signum in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for end in (self.sock, self._wake_r, self._wake_w):
            end.close()
        self.selector.close()
        null = os.open(os.devnull, os.O_RDONLY)
        try:
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError:  # a full or read-only disk costs the log, not the rank
            log = os.open(os.devnull, os.O_WRONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(log)
        os.environ.update(request["env"])
        sys.argv = [request["kind"], *request["argv"]]
        draw_anew()

    def reap(self) -> None:
        """Collect dead children, end what they left behind, tell the owner."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = next((n for n, p in self.pids.items() if p == pid), None)
            if name is None:
                self.log("reaped process %d, which a rank had left behind", pid)
                continue
            del self.pids[name]
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # its own session: everything it started
            self.send(event="exited", name=name, pid=pid, code=os.waitstatus_to_exitcode(status))

    def handle(self, request: dict[str, Any]) -> Callable[[], None] | None:
        if request["op"] == "fork":
            return self.fork(request)
        if request["op"] == "signal":
            pid = self.pids.get(request["name"])
            self.log("signal %d for %s (process %s)", request["signal"], request["name"], pid)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, request["signal"])
        return None

    # -- the two phases ---------------------------------------------------------------------

    def serve_early(self) -> Callable[[], None] | None:
        """Handle what has arrived already and needs no torch: the controller."""
        self.receive(0)
        now = [r for r in self.backlog if r.get("kind") == "controller"]
        self.backlog = [r for r in self.backlog if r not in now]
        for request in now:
            if job := self.handle(request):
                return job
        return None

    def serve(self) -> Callable[[], None] | None:
        """Serve until the owner goes away. Returns None then, or a child's job in a child."""
        while not self._owner_gone:
            self.reap()
            while self.backlog:
                if job := self.handle(self.backlog.pop(0)):
                    return job
            self.receive(None if not self._owner_gone else 0)
        self.shut_down()
        return None

    def shut_down(self) -> None:
        """Kill every descendant, what ranks have left behind included; remove the folder."""
        end_descendants()
        shutil.rmtree(self.root, ignore_errors=True)


def main(argv: list[str]) -> Callable[[], None]:
    """Serve; return in a child only, with its job."""
    fd, root, *preload = argv
    inherit_orphans()
    connection_guard.start()
    server = ForkServer(socket.socket(fileno=int(fd)), Path(root))
    importlib.import_module("ipyparallel.controller.app")
    import_without_debugger()
    problems = {}
    for module in (*ENGINE_MODULES, *preload):
        # The controller can start while torch, the next of these, is being imported.
        if job := server.serve_early():
            return job
        began = time.monotonic()
        try:
            importlib.import_module(module)
            server.log("imported %s in %.3f s", module, time.monotonic() - began)
        except Exception as error:  # the ranks will meet it again, with a traceback
            problems[module] = f"{type(error).__name__}: {error}"
    # What lives now is shared with every child: keep the collector from writing to it.
    gc.collect()
    gc.freeze()
    server.send(event="ready", problems=problems)
    return server.serve() or leave()


def run(job: Callable[[], Any] | None) -> None:
    """Do what a child is there for, outside every frame and handler of who has forked it."""
    while callable(job):
        job = job()


if __name__ == "__main__":
    run(main(sys.argv[1:]))
