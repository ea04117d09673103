"""Fork engines from one process that has already imported torch: the warm process of a lab.

Runs as ``python -m labkit.launch.fork_server FD ROOT PRELOAD...``: FD is one end of a socket
pair whose other end the owner (a notebook kernel) holds, ROOT a private folder to remove at the
end. Beside the messages of every ``Forker`` the owner hears:

    -> {"name": "3", "kind": "engine", "argv": [...], "environment": {...}, "log": "..."}
    <- {"ready": {"a module that cannot be imported": "why"}}
    <- {"log": "..."}                                                 (with LABKIT_LOG=debug)

The tree ends when the owner ends, however it ends: end of file on FD means that the owner is
gone, so every child is killed; and each child asks the kernel to be killed when this process
dies (``PR_SET_PDEATHSIG``). Being a subreaper, this process also inherits what a dead rank
leaves behind (data loader workers, a learner's subprocess) and ends that too.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..guard import server as guard
from ..wire.processes import end_descendants, end_with_parent, inherit_orphans, leave, send_message
from .forker import Forker, Job, run, write_to

#: What a child runs, by kind: "module:function", called with the request's argv.
CONTROLLER = "controller"
KINDS = {
    CONTROLLER: "labkit.launch.controller:main",
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


class ForkServer(Forker):
    """Fork controller and ranks of one lab."""

    files = 0

    def __init__(self, owner: socket.socket) -> None:
        super().__init__(owner)
        self._logs = os.environ.get("LABKIT_LOG", "").startswith("debug")
        # The owner decides when we end: a Ctrl-C in its terminal is not for us.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, *_: object) -> None:
        self.over = True

    def tell(self, **news: Any) -> None:
        """Send the owner news, if it is still there."""
        with contextlib.suppress(OSError):
            send_message(self.owner, news)

    def log(self, text: str, *args: Any) -> None:
        """Make the owner log what happens here: our own stderr ends with our folder."""
        if self._logs:
            self.tell(log=text % args)

    def serve_early(self) -> Job | None:
        """Fork what has been asked for already and needs no torch: the controller."""
        self.receive(0)
        for request in self.backlog:
            if request.content["kind"] == CONTROLLER:
                self.backlog.remove(request)
                return self.fork(request)
        return None

    def job(self, request: Mapping[str, Any], files: list[int]) -> Job:
        end_with_parent(self.pid)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
        try:
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError:  # a full or read-only disk costs the log, not the rank
            log = os.open(os.devnull, os.O_WRONLY)
        write_to(log, log)
        os.environ.update(request["environment"])
        sys.argv = [request["kind"], *request["argv"]]
        draw_anew()
        return lambda: _resolve(KINDS[request["kind"]])(request["argv"])

    def note_end(self, pid: int, code: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # its own session: everything it started


def call(argv: list[str]) -> None:
    """Call ``argv[0]`` ("module:function") with the rest of ``argv``."""
    _resolve(argv[0])(*argv[1:])


def _resolve(spec: str) -> Callable[..., Any]:
    module, _, function = spec.partition(":")
    return getattr(importlib.import_module(module), function)


# -- what is shared -----------------------------------------------------------------------------


def import_shared(
    preload: Sequence[str],
    before_each: Callable[[], Job | None] = lambda: None,
    log: Callable[..., object] = lambda text, *args: None,
) -> tuple[Job | None, dict[str, str]]:
    """Import all that ranks share.

    ``before_each()`` is called between two modules; where it returns a job, that is all.

    Returns
    -------
    tuple
        That job, if any; and which modules could not be imported, and why: whoever needs one will
        meet that again, with a traceback.
    """
    importlib.import_module("ipyparallel.controller.app")
    import_without_debugger()
    problems: dict[str, str] = {}
    for module in (*ENGINE_MODULES, *preload):
        if job := before_each():
            return job, problems
        began = time.monotonic()
        try:
            importlib.import_module(module)
            log("imported %s in %.3f s", module, time.monotonic() - began)
        except Exception as error:
            problems[module] = f"{type(error).__name__}: {error}"
    # What lives now is shared with every child: keep the collector from writing to it.
    gc.collect()
    gc.freeze()
    return None, problems


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


def main(argv: list[str]) -> Job:
    """Serve; return in a child only, with its job."""
    number, root, *preload = argv
    inherit_orphans()
    guard.start()
    server = ForkServer(socket.socket(fileno=int(number)))
    # The controller can start while torch is being imported.
    job, problems = import_shared(preload, server.serve_early, server.log)
    if job:
        return job
    server.tell(ready=problems)
    if job := server.serve():
        return job
    end_descendants()  # what ranks have left behind included
    shutil.rmtree(root, ignore_errors=True)
    leave()


if __name__ == "__main__":
    run(main(sys.argv[1:]))
