"""Hold the owner's end of the warm process that forks the ranks.

Imports nothing heavy: ``labkit.start`` creates the warm process first and imports ipyparallel
while torch is being imported over there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from .. import times
from ..errors import LabError, LabStopped
from ..wire.exit_code import describe_exit
from ..wire.forked import ForkedProcess
from . import private_folder, zygote_line

#: One that this process has started, or that a zygote has forked for it.
Process: TypeAlias = "subprocess.Popen[bytes] | ForkedProcess"

_log = logging.getLogger(__name__)
_SERVER = f"{__package__}.fork_server"
_server_log = logging.getLogger(_SERVER)

#: Imported once in the warm process and shared by every rank.
PRELOAD = ("torch", "torch.distributed", "torch.nn.parallel", "labkit.rank.preload")


def fork_is_safe() -> bool:
    """Tell whether ranks can be forked here (Linux; not macOS, whose system libraries may
    start threads on import, and not Windows, which has no fork)."""
    return sys.platform == "linux"


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
            folder, process, ours = _begin(preload, environment or {}, _ask_zygote)
        except TimeoutError:  # it may still use the folder: another one is needed
            folder, process, ours = _begin(preload, environment or {}, _ask_nobody)
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
            "op": "fork",
            "name": name,
            "kind": kind,
            "argv": list(argv),
            "env": dict(env or {}),
            "log": str(self.log_file(name)),
        }
        try:
            self._send(request)
        except LabError:
            child.code = -signal.SIGKILL  # it never was: nobody may wait for its end
            child.started.set()
            child.exited.set()
            raise
        return child

    def fork_ahead(self, name: str, kind: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Ask for a child that somebody else will :meth:`adopt`; returns at once."""
        self.fork(name, kind, argv, env)
        self._ahead.add(name)

    def adopt(self, name: str, on_exit: Callable[[int, int], None]) -> bool:
        """Take a child that was forked ahead; tell whether there is one.

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

    def signal(self, name: str, signum: int) -> None:
        """Send a signal to a child (the warm process does it: no process id is ever re-used)."""
        _log.debug("asks to send signal %d to %s", signum, name)
        self._send({"op": "signal", "name": name, "signal": int(signum)})

    def signal_process(self, pid: int, signum: int) -> bool:
        """Send a signal to a child, by its process id, at once; tell whether it runs.

        Its end is heard within milliseconds: nothing else has the process id by then.
        """
        running = [c for c in list(self.children.values()) if not c.exited.is_set()]
        if pid not in [child.pid for child in running]:
            return False
        _log.debug("sends signal %d to process %d", signum, pid)
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            return False
        return True

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
            with contextlib.suppress(LabError):  # all of them end with the warm process
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

    def _send(self, request: dict[str, Any]) -> None:
        data = json.dumps(request).encode() + b"\n"
        try:
            with self._lock:
                self._sock.sendall(data)
        except OSError:
            raise LabStopped(self.how_ended()) from None

    def how_ended(self) -> str:
        """Say in one sentence that the warm process has ended, and how."""
        code = self.process.poll()
        how = "" if code is None else f" with {describe_exit(code)}"
        return f"The process that starts the ranks has ended{how}; call labkit.start() again."

    def _read(self) -> None:
        with self._sock.makefile("rb") as stream, contextlib.suppress(OSError):
            for line in stream:
                event = json.loads(line)
                kind = event.pop("event")
                if kind == "ready":
                    self.problems = event["problems"]
                    _log.info(
                        "warm process is ready after %.3f s; not imported: %s",
                        time.monotonic() - self._began,
                        self.problems or "nothing",
                    )
                    self.ready.set()
                elif kind == "started":
                    child = self.children[event["name"]]
                    child.pid = event["pid"]
                    _log.debug("%s runs as process %d", child.name, child.pid)
                    child.started.set()
                elif kind == "exited":
                    self._note_exit(self.children[event["name"]], event["pid"], event["code"])
                elif kind == "log":
                    _server_log.debug("%s", event["text"])
        self._sock.close()
        code = self.process.wait()
        _log.info("warm process %d has ended with %s", self.process.pid, describe_exit(code))
        # Children die with the warm process (PR_SET_PDEATHSIG); nobody else will report them.
        for child in list(self.children.values()):
            if not child.exited.is_set():
                self._note_exit(child, child.pid or -1, -9)
        self.ready.set()
        self.closed.set()
        if code:  # it could not tidy up itself
            self.folder.remove()

    def _note_exit(self, child: Child, pid: int, code: int) -> None:
        _log.debug("%s (process %d) has ended with %s", child.name, pid, describe_exit(code))
        child.code = code
        child.started.set()
        with self._ends:
            child.exited.set()
            on_exit = child.on_exit
        if on_exit is not None:
            on_exit(pid, code)


def _begin(
    preload: Sequence[str], environment: Mapping[str, str], ask: Callable[..., Process | None]
) -> tuple[private_folder.PrivateFolder, Process, socket.socket]:
    """Make a folder and start a warm process in it; return both and our end of the line to it.

    ``ask`` asks somebody who has one ready.
    """
    folder = private_folder.PrivateFolder()
    ours, theirs = socket.socketpair()
    args = [str(folder.path), *preload]
    try:
        with open(folder.path / "warm.log", "wb") as log, theirs:
            env = {
                **os.environ,
                **private_folder.home_variables(folder.path),
                **zygote_line.ONE_THREAD,
                **environment,
            }
            process = ask(args, env, [theirs.fileno(), log.fileno()]) or subprocess.Popen(
                # -P: a stray random.py in the learner's folder must not be taken for Python's own.
                [sys.executable, "-P", "-m", _SERVER, str(theirs.fileno()), *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        folder.remove()
        raise
    return folder, process, ours


def _ask_zygote(*args: Any) -> Process | None:
    return zygote_line.ask(zygote_line.WARM, *args)


def _ask_nobody(*_: object) -> None:
    """Know of no process that has imported all."""


def forget_in_children(line: socket.socket) -> None:
    """Let no process that this one forks keep a socket open after the end of this one."""
    known = weakref.ref(line)

    def close() -> None:
        sock = known()
        if sock is not None and sock.fileno() >= 0:
            os.close(sock.detach())  # close() would wait for the reader's file object

    os.register_at_fork(after_in_child=close)
