"""Own one torchrun, as ``torchrun_owner`` does, in a process that has imported torch.

torchrun is forked from here, and so are its workers when torchrun asks for them
(``rank.torchrun.fork``): each of them begins with torch imported. Being the parent of all,
this process hears of every end, and what loses its parent falls to it.

    -> {"argv": [...], "environment": {...}}      with the worker's stdout and stderr as files
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from .. import times
from ..wire.family import end_with_parent, inherit_orphans, leave, set_name
from ..wire.torchrun import WORKERS
from . import fork_server
from .forker import Forker, Job, adapt, write_to
from .torchrun_owner import STDERR, STDOUT, end

AGENT, WORKER = "labkit.rank.torchrun.agent", "labkit.rank.torchrun.worker"


class TorchrunForker(Forker):
    """Fork torchrun, and workers for it."""

    look_seconds = times.KERNEL_LOOK

    def __init__(self, line: socket.socket, folder: Path) -> None:
        super().__init__(line)
        self.folder = folder
        self.pid = os.getpid()
        self.kernel = _other_end(line)
        self.agent = 0
        self.code: int | None = None

    def fork_agent(self, words: list[str]) -> Job | None:
        """Fork torchrun; its job in the child."""
        self.agent = os.fork()
        if self.agent:
            return None
        self.leave_behind([])
        end_with_parent(self.pid)
        # The notebook decides, as in a process that inherits this from ``torchrun_owner``.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        write_to(*(_create(self.folder / name) for name in (STDOUT, STDERR)))
        argv = [str(self.folder), *words]
        return lambda: _be_torchrun(argv)

    def reap(self) -> None:
        super().reap()
        if self.code is None:
            ended, status = os.waitpid(self.agent, os.WNOHANG)
            if ended:
                self.code = os.waitstatus_to_exitcode(status)

    def is_over(self) -> bool:
        self.reap()
        return self.code is not None or self.has_no_kernel()

    def has_no_kernel(self) -> bool:
        """Tell whether the notebook's kernel has ended, whoever has its end of the line now.

        One that lives says a word before it closes its end.
        """
        with contextlib.suppress(BlockingIOError):
            if not self.owner.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                return True
        return bool(select.select([self.kernel], [], [], 0)[0])

    def why_not(self, request: Mapping[str, Any]) -> str:
        return ""

    def job(self, request: Mapping[str, Any], files: list[int]) -> Job:
        end_with_parent(self.pid)
        set_name(f"torchrun-{request['environment'].get('RANK', '')}")
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        write_to(*files)
        os.environ.clear()
        os.environ.update(request["environment"])
        adapt(request["environment"])
        sys.stdout, sys.stderr = _unbuffered(sys.stdout), _unbuffered(sys.stderr)
        vars(sys).update(__stdout__=sys.stdout, __stderr__=sys.stderr)
        fork_server.draw_anew()
        return lambda: _main_of(WORKER)(request["argv"])


def main(argv: list[str]) -> Job | None:
    """Own one torchrun; return in a child only, with its job."""
    number, folder, *words = argv
    line = socket.socket(fileno=int(number))
    inherit_orphans()
    set_name("torchrun-owner")
    forker = TorchrunForker(line, Path(folder))
    if select.select([line], [], [], 0)[0]:  # nobody has waited for it
        leave(1)
    forker.listen(Path(folder, WORKERS))
    if job := forker.fork_agent(words) or forker.serve():
        return job
    leave(end(forker.code, folder, forker.has_no_kernel))


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
    """Let ``inspect`` find the module of the frames that began this process.

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


def _other_end(line: socket.socket) -> int:
    """Return a pidfd of the process that has made this pair of sockets."""
    pid, _, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return os.pidfd_open(pid)


def _unbuffered(stream: Any) -> Any:
    """Return a stream to the same file that keeps nothing, as those of ``python -u``."""
    raw = io.FileIO(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, write_through=True)


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
