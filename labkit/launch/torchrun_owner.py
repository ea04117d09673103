"""Own one torchrun and all that it starts, so that nothing of it outlives the notebook.

torchrun puts each worker into a session of its own, and a worker may start processes too; but
what loses its parent falls to this process. When torchrun has ended, when the kernel closes its
end of the line or is gone, however it went, every descendant is killed. The exit status is
torchrun's.

Runs as ``python -m labkit.launch.torchrun_owner FD FOLDER COMMAND...``: FD is one end of a socket
pair whose other end the notebook's kernel holds, FOLDER the private folder of this run, COMMAND
what starts torchrun. Or is forked from a process that has imported torch (``zygote``), with
torchrun's own words behind FOLDER; then torchrun is forked from here, and so are its workers when
torchrun asks for them (``rank.torchrun.fork``):

    -> {"argv": [...], "environment": {...}}      with the worker's stdout and stderr as files
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import select
import selectors
import shutil
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..wire.processes import (
    end_by_signal,
    end_descendants,
    end_with_parent,
    inherit_orphans,
    leave,
    set_name,
)
from ..wire.protocol import WORKERS
from . import fingerprint, fork_server
from .forker import Forker, Job, close_others, run, write_to

#: Where torchrun itself writes, in the folder; the workers write into files of their own.
STDOUT, STDERR = "torchrun.out", "torchrun.err"
#: Where the owner writes, if it has to.
LOG = "owner.log"

AGENT, WORKER = "labkit.rank.torchrun.agent", "labkit.rank.torchrun.worker"


class TorchrunOwner(Forker):
    """Fork torchrun, and workers for it."""

    def __init__(self, line: socket.socket, folder: Path) -> None:
        super().__init__(line)
        inherit_orphans()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the kernel decides
        self.folder = folder
        self.agent = 0
        self.code: int | None = None
        self.kernel = _other_end(line)
        if self.kernel is not None:
            self.selector.register(self.kernel, selectors.EVENT_READ, self.hear_owner)

    def own(self, torchrun: Job) -> Job:
        """Fork torchrun and serve until it has ended or nobody wants it any more; returns in a
        child only, with its job."""
        self.agent = os.fork()
        if self.agent == 0:
            self.leave_behind()
            close_others()
            end_with_parent(self.pid)
            write_to(*(_create(self.folder / name) for name in (STDOUT, STDERR)))
            return torchrun
        self.children[self.agent] = ("torchrun", None)
        return self.serve() or self._end()

    def hear_owner(self) -> None:
        """Record that the kernel closes its end, or is about to, or is gone."""
        self.over = True

    def note_end(self, pid: int, code: int) -> None:
        if pid == self.agent:
            self.code = code
            self.over = True

    def job(self, request: Mapping[str, Any], files: list[int]) -> Job:
        close_others(*files)
        end_with_parent(self.pid)
        set_name(f"torchrun-{request['environment'].get('RANK', '')}")
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        write_to(*files)
        os.environ.clear()
        os.environ.update(request["environment"])
        fingerprint.adapt(request["environment"])
        sys.stdout, sys.stderr = _unbuffered(sys.stdout), _unbuffered(sys.stderr)
        vars(sys).update(__stdout__=sys.stdout, __stderr__=sys.stderr)
        fork_server.draw_anew()
        return lambda: _main_of(WORKER)(request["argv"])

    def _end(self) -> NoReturn:
        """Kill every descendant, and end as torchrun has ended; remove the folder if the kernel,
        which would do that, has gone."""
        end_descendants()
        if self._has_no_kernel():
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.code is not None and self.code < 0:
            end_by_signal(-self.code)
        leave(1 if self.code is None else self.code)

    def _has_no_kernel(self) -> bool:
        """Return whether the notebook's kernel has ended, whoever has its end of the line now.

        One that lives says a word before it closes its end.
        """
        self.owner.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            if not self.owner.recv(1, socket.MSG_PEEK):
                return True
        return self.kernel is not None and bool(select.select([self.kernel], [], [], 0)[0])


def main(argv: list[str]) -> Job:
    """Own one torchrun, in a process that has imported torch."""
    number, folder, *words = argv
    line = socket.socket(fileno=int(number))
    set_name("torchrun-owner")
    if select.select([line], [], [], 0)[0]:  # nobody has waited for it
        leave(1)
    owner = TorchrunOwner(line, Path(folder))
    owner.listen(Path(folder, WORKERS))
    return owner.own(lambda: _be_torchrun([folder, *words]))


def _be_torchrun(argv: list[str]) -> NoReturn:
    """Run torchrun, and end as Python ends it, but for tearing torch down."""
    _know_frozen_modules()
    code = 1
    try:
        code = _main_of(AGENT)(argv)
    except SystemExit as left:  # --help
        code = int(left.code or 0)
    except BaseException:
        traceback.print_exc()
    leave(code)


def _know_frozen_modules() -> None:
    """Make ``inspect`` find the module of the frames that began this process.

    torch's rendezvous calls ``inspect.stack()`` some 18 times for the names in its log. Each time,
    a frame whose file is no module's lets ``inspect`` go through all modules, of which there are
    thousands here: four fifths of the agent's processor time.
    """
    known: dict[str, str] = getattr(inspect, "modulesbyfile", {})  # no documented name
    for name in ("runpy", "importlib._bootstrap", "importlib._bootstrap_external"):
        known.setdefault(f"<frozen {name}>", name)


def _main_of(module: str) -> Callable[..., Any]:
    main: Callable[..., Any] = importlib.import_module(module).main
    return main


def _other_end(line: socket.socket) -> int | None:
    """Return a pidfd of the process that has made this pair of sockets, where the system can."""
    if sys.platform != "linux":
        return None
    pid, _, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return os.pidfd_open(pid)


def _unbuffered(stream: Any) -> Any:
    """Return a stream to the same file that keeps nothing, as those of ``python -u``."""
    raw = io.FileIO(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, write_through=True)


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)


if __name__ == "__main__":
    number, folder, *command = sys.argv[1:]
    owner = TorchrunOwner(socket.socket(fileno=int(number)), Path(folder))
    run(owner.own(lambda: os.execv(command[0], command)))
