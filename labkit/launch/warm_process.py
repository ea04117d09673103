"""Hold the owner's end of the warm process that forks the ranks.

Imports nothing heavy: ``labkit.start`` creates the warm process first and imports ipyparallel
while torch is being imported over there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base import times
from ..base.errors import LabError, LabStopped
from ..wire.processes import receive_message, send_message
from ..wire.state import describe_exit
from . import private_folder, zygote_client
from .zygote_client import PRELOAD, Process, forget_in_children

_log = logging.getLogger(__name__)
_SERVER = f"{__package__}.fork_server"
_server_log = logging.getLogger(_SERVER)

#: What it calls the controller.
CONTROLLER = "controller"
#: What the controller and the ranks write is shown when a start fails: not all that they log.
QUIET = ["--log-level=30"]


@dataclass
class Child:
    """One process that the warm process forked."""

    name: str
    on_exit: Callable[[int, int], None] | None = None  #: called with (pid, exit code)
    pid: int | None = None
    code: int | None = None
    started: threading.Event = field(default_factory=threading.Event)
    exited: threading.Event = field(default_factory=threading.Event)


class WarmProcess:
    """The owner's end of one warm process. Made by :meth:`start`. Thread-safe."""

    def __init__(
        self,
        folder: private_folder.PrivateFolder,
        process: Process,
        sock: socket.socket,
    ) -> None:
        self.folder = folder
        self.root = folder.path
        self.process = process
        self.children: dict[str, Child] = {}
        self.users = set[object]()  #: launchers that need it; whoever adds itself may end it
        self.ready = threading.Event()
        self.closed = threading.Event()
        self.problems: dict[str, str] = {}  #: module -> why it could not be imported
        self._lock = threading.Lock()
        self._ahead: set[str] = set()  # forked before anybody could say what to do at their ends
        self._ends = threading.Lock()  # so that each is heard of once
        self._sock = sock
        self._began = time.monotonic()
        self._reader = threading.Thread(target=self._read, name="labkit-warm", daemon=True)

    @classmethod
    def start(
        cls, preload: Sequence[str] = PRELOAD, environment: Mapping[str, str] | None = None
    ) -> WarmProcess:
        """Start a warm process; returns at once.

        Parameters
        ----------
        preload
            Modules to import once, before any rank is forked.
        environment
            Variables that must be set before torch is imported (``OMP_NUM_THREADS``).

        Raises
        ------
        StartError
            If its private folder cannot be made.
        """
        private_folder.sweep()
        try:
            folder, process, ours = _begin(preload, environment or {})
        except TimeoutError:  # it may still use the folder: another one is needed
            folder, process, ours = _begin(preload, environment or {}, alone=True)
        forget_in_children(ours)
        warm = cls(folder, process, ours)
        how = "starts" if isinstance(process, subprocess.Popen) else "is forked by the zygote"
        _log.info("warm process %d %s, to import %s", process.pid, how, ", ".join(preload))
        warm._reader.start()
        return warm

    # -- requests ---------------------------------------------------------------------------

    def fork(
        self,
        name: str,
        kind: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        on_exit: Callable[[int, int], None] | None = None,
    ) -> Child:
        """Ask for a child; returns at once. ``on_exit(pid, code)`` runs in the reader thread.

        Raises
        ------
        LabError
            If a child of that name is running or the warm process has ended.
        """
        _log.debug("asks for %s %s", kind, name)
        with self._lock:
            previous = self.children.get(name)
            if previous is not None and not previous.exited.is_set():
                raise LabError(f"{kind} {name!r} is already running.")
            child = self.children[name] = Child(name, on_exit)
        request = {
            "name": name,
            "kind": kind,
            "argv": list(argv),
            "environment": dict(env or {}),
            "log": str(self.log_file(name)),
        }
        try:
            with self._lock:
                send_message(self._sock, request)
        except OSError:
            child.code = -signal.SIGKILL  # it never was: nobody may wait for its end
            child.started.set()
            child.exited.set()
            raise LabStopped(self.how_ended()) from None
        return child

    def fork_ahead(self, name: str, kind: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Ask for a child that somebody else will :meth:`adopt`; returns at once."""
        self.fork(name, kind, argv, env)
        self._ahead.add(name)

    def fork_controller(self) -> None:
        """Ask for the controller before this process has imported ipyparallel; returns at once.

        The controller takes as long to be there as the import does. ipyparallel's launcher then
        finds it and asks for none (``ipp_launchers.LabkitControllerLauncher``).
        """
        profile = self.root / private_folder.PROFILE
        profile.mkdir(mode=0o700)
        # As ipyparallel's launchers tell it: the profile of a cluster without a name.
        env = {"IPP_CLUSTER_ID": "", "IPP_PROFILE_DIR": str(profile)}
        self.fork_ahead(CONTROLLER, "controller", [*self.controller_arguments, *QUIET], env)

    @property
    def controller_arguments(self) -> list[str]:
        """What a controller is started with that the warm process forks."""
        return [
            f"--LabController.socket_folder={self.root}/zmq",
            # The end of a process of this machine is known otherwise: one that is silent was
            # stopped, by a debugger for instance, and goes on.
            f"--HeartMonitor.max_heartmonitor_misses={sys.maxsize}",
        ]

    def adopt(self, name: str, on_exit: Callable[[int, int], None]) -> bool:
        """Take a child that was forked ahead; return whether there is one.

        ``on_exit(pid, code)`` runs in the reader thread, or here if the child has ended already.
        """
        if name not in self._ahead:
            return False
        self._ahead.discard(name)
        child = self.children[name]
        with self._ends:
            child.on_exit = on_exit
            ended = child.exited.is_set()
        if ended and child.code is not None:
            on_exit(child.pid or -1, child.code)
        return True

    def signal(self, name: str, signum: int) -> bool:
        """Send a signal to a child; return whether it runs.

        Its end is heard within milliseconds: nothing else has the process id by then.
        """
        _log.debug("sends signal %d to %s", signum, name)
        child = self.children[name]
        child.started.wait(times.FORKED)
        if child.exited.is_set() or child.pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signum)
            return True
        return False

    def signal_process(self, pid: int, signum: int) -> bool:
        """Send a signal to a child, by its process id; return whether it runs."""
        names = [child.name for child in list(self.children.values()) if child.pid == pid]
        return any(self.signal(name, signum) for name in names)

    def log_file(self, name: str) -> Path:
        """Name the file that collects what a child writes outside Python's own streams."""
        return self.root / f"{name.replace('/', '-')}.log"

    def output(self, name: str, limit: int = 4000) -> str:
        """Return the last ``limit`` characters of a child's log, "" if there is none."""
        try:
            return self.log_file(name).read_text("utf-8", errors="replace")[-limit:]
        except OSError:
            return ""

    def end(self, names: Sequence[str], patience: float | None = None) -> None:
        """End some children: SIGTERM, after ``patience`` seconds (``times.TERMINATED`` if
        None) SIGKILL, and wait for it."""
        children = [self.children[name] for name in names]
        patience = times.TERMINATED.seconds() if patience is None else patience
        killed = times.KILLED.seconds()
        for signum, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, killed)):
            running = [c for c in children if not c.exited.is_set()]
            for child in running:
                self.signal(child.name, signum)
            deadline = time.monotonic() + seconds
            for child in running:
                child.exited.wait(max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        """End the children, those that wish it by themselves; then close."""
        if self.ready.is_set():  # else it would not hear of it, see ``close``
            self.end(list(self.children))
        self.close()

    def close(self) -> None:
        """End the warm process and everything it forked; remove the private folder."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        # One that imports does not look at its socket; it has forked the controller at most,
        # which ends with it.
        bound = times.WARM_ENDED if self.ready.is_set() else times.WARM_ENDED_IMPORTING
        try:
            self.process.wait(bound.seconds())
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if threading.current_thread() is not self._reader:
            self._reader.join(times.WARM_ENDED.seconds())
        self.folder.remove()

    # -- events -----------------------------------------------------------------------------

    def how_ended(self) -> str:
        """Return in one sentence that the warm process has ended, and how."""
        code = self.process.poll()
        how = "" if code is None else f" with {describe_exit(code)}"
        return f"The process that starts the ranks has ended{how}; call labkit.start() again."

    def _read(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                self._take(receive_message(self._sock, []))
        self._sock.close()
        code = self.process.wait()
        _log.info("warm process %d has ended with %s", self.process.pid, describe_exit(code))
        # Children die with the warm process (PR_SET_PDEATHSIG); nobody else will report them.
        for child in list(self.children.values()):
            if not child.exited.is_set():
                self._note_exit(child, -signal.SIGKILL)
        self.ready.set()
        self.closed.set()
        if code:  # it could not tidy up itself
            self.folder.remove()

    def _take(self, news: dict[str, Any]) -> None:
        if "ready" in news:
            self.problems = news["ready"]
            _log.info(
                "warm process is ready after %.3f s; not imported: %s",
                time.monotonic() - self._began,
                self.problems or "nothing",
            )
            self.ready.set()
        elif "log" in news:
            _server_log.debug("%s", news["log"])
        else:
            child = self.children[news["name"]]
            if "pid" in news:
                child.pid = news["pid"]
                _log.debug("%s runs as process %d", child.name, child.pid)
                child.started.set()
            elif "code" in news:
                self._note_exit(child, news["code"])
            else:
                with contextlib.suppress(OSError):
                    self.log_file(child.name).write_text(news["refused"])
                self._note_exit(child, 1)

    def _note_exit(self, child: Child, code: int) -> None:
        pid = child.pid or -1
        _log.debug("%s (process %d) has ended with %s", child.name, pid, describe_exit(code))
        child.code = code
        with self._ends:
            child.exited.set()
            on_exit = child.on_exit
        child.started.set()
        if on_exit is not None:
            on_exit(pid, code)


def _begin(
    preload: Sequence[str], environment: Mapping[str, str], *, alone: bool = False
) -> tuple[private_folder.PrivateFolder, Process, socket.socket]:
    """Make a folder and start a warm process in it; return both and our end of the line to it."""
    folder = private_folder.PrivateFolder()
    args = [str(folder.path), *preload]
    env = {
        **os.environ,
        **private_folder.home_variables(folder.path),
        **zygote_client.ONE_THREAD,
        **environment,
    }
    try:
        return folder, *zygote_client.start(
            zygote_client.WARM, args, [_SERVER, *args], env, folder.path / "warm.log", alone=alone
        )
    except BaseException:
        folder.remove()
        raise
