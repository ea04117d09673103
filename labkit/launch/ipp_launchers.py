"""Offer the warm process to ipyparallel: ``ipp.Cluster(engines="labkit", n=4)``.

With ``controller="labkit"`` too, the controller is forked from the same warm process and
listens on unix sockets in its private folder only, unless the cluster names an address.

All processes end with the one that started the cluster. While it lives, ``Cluster.from_dict`` and
``Cluster.from_file`` reach them from elsewhere as they reach ipyparallel's local processes: by
process id.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
import weakref
from collections.abc import Sequence
from typing import Any

import psutil
from ipyparallel.cluster.launcher import (
    BaseLauncher,
    ControllerLauncher,
    EngineLauncher,
    LocalControllerLauncher,
    LocalEngineSetLauncher,
    ProcessStateError,
)
from traitlets import Any as AnyTrait
from traitlets import Float, List, Unicode

from ..base import times
from ..wire.protocol import RANK_HINT, RECORD_FOLDER
from .exit_notice import unregister
from .warm_process import CONTROLLER, Child, WarmProcess
from .zygote_client import PRELOAD

#: Characters of a log to read for ``get_output``, which returns the last ``output_limit`` lines.
OUTPUT_CHARACTERS = 1 << 18
#: Controllers whose engines have had ids of our choice.
_numbered = weakref.WeakSet[ControllerLauncher]()


class _WarmLauncher(BaseLauncher):
    """What both launchers share: the warm process of their cluster."""

    preload = List(
        Unicode(), list(PRELOAD), config=True, help="Modules imported once for all engines."
    )
    stop_seconds_until_kill = Float(
        times.TERMINATED.least, config=True, help="From SIGTERM to SIGKILL."
    )
    #: The WarmProcess, once started.
    warm = AnyTrait()
    #: ipyparallel's own launcher of such processes, for whoever reaches ours from elsewhere.
    plain: type[BaseLauncher]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._output: str | None = None  # what was written, once the log is gone

    def names(self) -> list[str]:
        """Return what the warm process calls the processes of this launcher."""
        raise NotImplementedError

    # -- the warm process -------------------------------------------------------------------

    def get_warm(self) -> WarmProcess:
        """Return the cluster's warm process; start it if this is the first to ask."""
        # The loop that runs now: asked for later, in another thread, the default makes a new one.
        _ = self.loop
        if self.state != "before":
            raise ProcessStateError(f"it was already started (state: {self.state})")
        cluster = self.parent
        warm = getattr(cluster, "warm", None)
        if warm is None or warm.closed.is_set():
            cluster.warm = warm = WarmProcess.start(self.preload)
        warm.users.add(self.identifier)
        self.warm = warm
        return warm

    def release_warm(self) -> None:
        """End the warm process with its last user."""
        if self.warm is not None:
            self.warm.users.discard(self.identifier)
            if not self.warm.users:
                self.warm.close()

    async def _wait_for_forks(self) -> None:
        """Wait for the process ids, if others are to find them in the cluster's file."""
        if getattr(self.parent, "cluster_file", ""):
            for name in self.names():
                await asyncio.to_thread(self.warm.children[name].started.wait, times.FORKED)

    # -- what ipyparallel asks for ----------------------------------------------------------

    def find_args(self) -> list[str]:
        return [self.name]

    def signal(self, sig: int | str) -> None:
        if self.warm is None or self.state != "running":
            return
        signum = getattr(signal, f"SIG{sig.removeprefix('SIG')}") if isinstance(sig, str) else sig
        for name in self.names():
            self.warm.signal(name, signum)

    async def join(self, timeout: float | None = None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.state == "running" and self._running():
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{self.identifier} did not exit in {timeout} seconds.")
            await asyncio.sleep(times.ENDED_LOOK)

    def get_output(self, remove: bool = False) -> str:
        """Return what the processes wrote, the last ``output_limit`` lines of each."""
        if self._output is not None or self.warm is None:
            return self._output or ""
        output = self._read_output()
        if remove:
            self._output = output
            for name in self.names():
                with contextlib.suppress(OSError):
                    self.warm.log_file(name).unlink()
        return output

    def notify_stop(self, data: dict[str, Any]) -> dict[str, Any]:
        """Record the end; let go of the warm process."""
        if self.state != "after":
            self._keep_output()
            super().notify_stop(data)
            self.release_warm()
        return data

    def _notify(self, data: dict[str, Any]) -> None:
        """Report the stop in the launcher's loop, or here if that loop does not run (a Cluster
        used without asyncio ends its loop after every call)."""
        if self.loop.asyncio_loop.is_running():
            self.loop.add_callback(self.notify_stop, data)
        else:
            self.notify_stop(data)

    def _read_output(self) -> str:
        raise NotImplementedError

    def _read_log(self, name: str) -> str:
        lines = self.warm.output(name, OUTPUT_CHARACTERS).splitlines(keepends=True)
        return "".join(lines[-self.output_limit :])

    def _keep_output(self) -> None:
        """Read the output while it is there: the logs go with the warm process."""
        if self._output is None and self.warm is not None:
            self._output = self._read_output()

    async def _end(self, names: list[str]) -> None:
        await asyncio.to_thread(self.warm.end, names, self.stop_seconds_until_kill)

    # -- reached from elsewhere --------------------------------------------------------------

    def _state_of(self, name: str, **more: Any) -> dict[str, Any]:
        """Describe one process as ipyparallel does that starts it itself."""
        child: Child = self.warm.children[name]
        child.started.wait(times.FORKED)
        return {
            **super().to_dict(),
            "pid": child.pid or -1,
            "output_file": str(self.warm.log_file(name)),
            **more,
        }

    @classmethod
    def from_dict(cls, d: dict[str, Any], **kwargs: Any) -> Any:
        """Return a launcher of ipyparallel's own for processes that another one started: how they
        ended only that one knows."""
        return cls.plain.from_dict(d, **kwargs)

    def _running(self) -> bool:
        """Return whether one of the processes runs or is still to be forked."""
        return not all(self.warm.children[name].exited.is_set() for name in self.names())


class LabkitControllerLauncher(_WarmLauncher, ControllerLauncher):
    """Fork the controller from the warm process."""

    plain = LocalControllerLauncher
    _process: psutil.Process | None = None

    def names(self) -> list[str]:
        return [CONTROLLER]

    def to_dict(self) -> dict[str, Any]:
        return self._state_of(CONTROLLER)

    async def start(self) -> int:
        warm = self.get_warm()
        if not warm.adopt(CONTROLLER, self._exited):
            argv = [*warm.controller_arguments, *self.controller_args]
            warm.fork(CONTROLLER, "controller", argv, self.get_env(), self._exited)
        result = self.notify_start(0)
        await self._wait_for_forks()
        return result

    @property
    def process(self) -> psutil.Process | None:
        """The controller's process, once it is forked; None before the start.

        Raises
        ------
        psutil.NoSuchProcess
            If it ended before anybody asked.
        """
        if self._process is None and self.warm is not None:
            child = self.warm.children[CONTROLLER]
            child.started.wait(times.FORKED)
            self._process = psutil.Process(child.pid)
        return self._process

    def _exited(self, pid: int, code: int) -> None:
        if self.state == "stopping":
            return
        self._keep_output()
        self._notify({"exit_code": code, "pid": pid, "identifier": self.identifier})

    def poll(self) -> int | str | None:
        """Return None while the controller runs, then its exit code."""
        return self.warm.children[CONTROLLER].code if self.warm is not None else "unknown"

    def _read_output(self) -> str:
        return self._read_log(CONTROLLER)

    async def stop(self) -> None:
        if self.warm is None or not self.running:
            return
        self.state = "stopping"  # their ends are no news now
        self.warm.signal(CONTROLLER, signal.SIGKILL)  # it holds nothing that needs saving
        await self._end([CONTROLLER])
        # Not the signal: that would be reported as an accident.
        self.notify_stop({"exit_code": 0, "identifier": self.identifier})


class LabkitEngineSetLauncher(_WarmLauncher, EngineLauncher):
    """Fork engines from the warm process; report each exit at once, to ipyparallel's hub too."""

    plain = LocalEngineSetLauncher
    _replacing = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._alive: dict[str, int] = {}  # name -> index
        self.exits: dict[int, tuple[int, int]] = {}  #: index -> (pid, code)
        self.observers: list[Any] = []  #: called with (index, pid, code), in a thread of ours

    def names(self) -> list[str]:
        return [self.name_of(index) for index in range(self.n)]

    def name_of(self, index: int) -> str:
        return f"engine-{self.engine_set_id}-{index}"

    def to_dict(self) -> dict[str, Any]:
        alive = list(self._alive.items())
        engines = {str(index): self._state_of(name, n=1) for name, index in alive}
        return {**super().to_dict(), "pid": -1, "engines": engines}

    async def start(self, n: int) -> list[int]:
        self.get_warm()
        self.n = n
        numbered = self._number_engines()
        for index in range(n):
            self.start_one(index, *([f"--LabEngine.id={index}"] if numbered else []))
        result = self.notify_start([])
        await self._wait_for_forks()
        return result

    def _number_engines(self) -> bool:
        """Return whether engines shall ask the hub for their index as id, so that the two agree.

        Only the first set of a controller does: the hub settles a dead engine's messages by id
        half a minute later, so an id must not be used twice.
        """
        controller = getattr(self.parent, "controller", None)
        if controller is None or controller.start_data is None:
            return False  # somebody else started it: others may have had the ids
        if controller in _numbered:
            return False
        _numbered.add(controller)
        return len(self.parent.engines) <= 1

    def start_one(self, index: int, *extra_args: str) -> None:
        """Fork the engine with this index; also replaces one that has ended."""
        name = self.name_of(index)
        argv = [f"--LabEngine.id_file={self._id_file(name)}", *extra_args, *self.engine_args]
        if isinstance(getattr(self.parent, "controller", None), LabkitControllerLauncher):
            argv.append("--LabEngine.says_ready=True")
        env = {**self.get_env(), RANK_HINT: str(index), RECORD_FOLDER: str(self.warm.root)}
        self._alive[name] = index
        self.exits.pop(index, None)

        def on_exit(pid: int, code: int) -> None:
            self._exited(name, pid, code)

        self.warm.fork(name, "engine", argv, env, on_exit)

    def replace(self, indexes: Sequence[int]) -> None:
        """End some engines and start as many fresh ones, without ending the set."""
        self._replacing = True
        self.warm.end([self.name_of(i) for i in indexes], self.stop_seconds_until_kill)
        for index in indexes:
            self.start_one(index)
        self._replacing = False

    def _exited(self, name: str, pid: int, code: int) -> None:
        index = self._alive.pop(name, None)
        if index is None:
            return
        self.exits[index] = (pid, code)
        for observer in list(self.observers):
            observer(index, pid, code)
        if self.state != "running":
            return
        self._unregister([name])
        if not self._alive and not self._replacing:
            codes = [c for _, c in self.exits.values()]
            self._keep_output()
            data = {"exit_code": next((c for c in codes if c), 0), "engines": dict(self.exits)}
            self._notify(data)

    # -- the hub ----------------------------------------------------------------------------

    def _id_file(self, name: str) -> str:
        return str(self.warm.root / f"{name}.id")

    def _hub_gone(self) -> bool:
        """Return whether the controller has ended: news for it would wait for its bound."""
        child = self.warm.children.get(CONTROLLER)
        if child is not None:
            return child.exited.is_set()
        controller = getattr(self.parent, "controller", None)
        return controller is not None and controller.state == "after"

    def _unregister(self, names: Sequence[str]) -> None:
        """Notify the hub that engines are gone, as their nannies would have."""
        info = json.loads(self.environment.get("IPP_CONNECTION_INFO", "null"))
        ids: dict[int, int | None] = {}
        for name in names:
            try:
                ids[int(os.readlink(self._id_file(name)))] = None
                os.unlink(self._id_file(name))
            except (OSError, ValueError):
                continue  # it never registered
        if info is not None and ids and not self._hub_gone():
            unregister(info, ids)

    # -- output and end ---------------------------------------------------------------------

    def _read_output(self) -> str:
        outputs = {i: self._read_log(self.name_of(i)) for i in range(self.n)}
        return "\n".join(f"engine {i}:\n{text}" for i, text in outputs.items() if text)

    async def stop(self) -> None:
        if self.warm is None or not self.running:
            return
        self.state = "stopping"  # their ends are no news now
        names = self.names()
        await self._end(names)
        await asyncio.to_thread(self._unregister, names)
        self.notify_stop({"exit_code": 0, "engines": dict(self.exits)})
