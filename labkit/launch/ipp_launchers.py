"""Offer the warm process to ipyparallel: ``ipp.Cluster(engines="labkit", n=4)``.

With ``controller="labkit"`` too, the controller is forked from the same warm process and
listens on unix sockets in its private folder only.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from ipyparallel.cluster.launcher import (
    BaseLauncher,
    ControllerLauncher,
    EngineLauncher,
    NotRunning,
    ProcessStateError,
)
from traitlets import Float, Instance, List, Unicode

from ..wire.protocol import RANK_HINT
from . import ipyparallel_internals
from .exit_notice import unregister
from .warm_process import PATIENCE, PRELOAD, WarmProcess

#: Milliseconds between heartbeats: an engine counts as connected after the second one.
HEARTBEAT_MS = 100
#: What the warm process calls the controller.
CONTROLLER = "controller"


class _WarmLauncher(BaseLauncher):
    """What both launchers share: the warm process of their cluster."""

    preload = List(
        Unicode(), list(PRELOAD), config=True, help="Modules imported once for all engines."
    )
    stop_seconds_until_kill = Float(PATIENCE, config=True, help="From SIGTERM to SIGKILL.")
    warm = Instance(WarmProcess, allow_none=True)

    def get_warm(self) -> WarmProcess:
        """Return the cluster's warm process; make it if this is the first to ask."""
        _ = self.loop  # the one that runs now: asked for later, in another thread, it makes one
        cluster = self.parent
        warm = self.warm or getattr(cluster, "warm", None)
        if warm is None or warm.closed.is_set():
            warm = WarmProcess(self.preload)
            cluster.warm = warm
            cluster.warm_users = set()
        self.warm = warm
        users = getattr(cluster, "warm_users", None)
        if users is not None:
            users.add(self.identifier)
        return warm

    def release_warm(self) -> None:
        """End the warm process with its last user, unless somebody else brought it."""
        users = getattr(self.parent, "warm_users", None)
        if users is None or self.warm is None:
            return
        users.discard(self.identifier)
        if not users:
            self.warm.close()

    def _notify(self, data: dict[str, Any]) -> None:
        """Report the stop in the launcher's loop, or here if that loop does not run (a Cluster
        used without asyncio ends its loop after every call)."""
        if self.loop.asyncio_loop.is_running():
            self.loop.add_callback(self.notify_stop, data)
        else:
            self.notify_stop(data)

    def find_args(self) -> list[str]:
        return [self.name]

    @classmethod
    def from_dict(cls, d: dict[str, Any], **kwargs: Any) -> Any:
        raise NotRunning("labkit's processes end with the process that started them")

    async def _end(self, names: list[str]) -> None:
        assert self.warm is not None
        await asyncio.to_thread(self.warm.end, names, self.stop_seconds_until_kill)


class LabkitControllerLauncher(_WarmLauncher, ControllerLauncher):
    """Fork the controller from the warm process."""

    async def start(self) -> int:
        warm = self.get_warm()
        folder = self.profile_dir
        argv = [
            f"--profile-dir={folder}",
            f"--cluster-id={self.cluster_id}",
            "--IPController.use_threads=True",
            *_listening(warm),
            "--IPController.location=127.0.0.1",
            "--IPController.db_class=NoDB",
            f"--HeartMonitor.period={HEARTBEAT_MS}",
            # Exits are reported by the warm process; a beat missed on a busy machine is no exit.
            "--HeartMonitor.max_heartmonitor_misses=600",
            "--log-level=30",
            *self.controller_args,
        ]
        self._name = CONTROLLER
        self._child = warm.fork(self._name, "controller", argv, self.get_env(), self._exited)
        return self.notify_start(0)

    def _exited(self, pid: int, code: int) -> None:
        data = {"exit_code": code, "pid": pid, "identifier": self.identifier}
        self._notify(data)

    def poll(self) -> int | None:
        return self._child.code

    def signal(self, sig: int) -> None:
        assert self.warm is not None
        self.warm.signal(self._name, sig)

    async def get_connection_info(self, timeout: float | None = None) -> dict[str, Any]:
        """Return what clients and engines need to connect, as soon as it is written."""
        deadline = time.monotonic() + (self.connection_info_timeout if timeout is None else timeout)
        info: dict[str, Any] = {}
        while time.monotonic() < deadline:
            try:
                for kind, path in self.connection_files.items():
                    with open(path) as file:
                        info[kind] = json.load(file)
                return info
            except (FileNotFoundError, ValueError):  # not there yet, or half written
                if self._child.exited.is_set():
                    assert self.warm is not None
                    tail = self.warm.output(self._name)
                    raise RuntimeError(f"The controller ended at start-up:\n{tail}") from None
                await asyncio.sleep(0.005)
        raise TimeoutError(f"The controller was not ready after {timeout} s")

    def get_output(self, remove: bool = False) -> str:
        return self.warm.output(self._name) if self.warm else ""

    async def stop(self) -> None:
        assert self.warm is not None
        self.warm.signal(self._name, signal.SIGKILL)  # it holds nothing that needs saving
        await self._end([self._name])
        self.release_warm()


def _listening(warm: WarmProcess) -> list[str]:
    """Return the settings of where the controller listens: in the private folder, if it can."""
    if ipyparallel_internals.has_unix_sockets():
        return ["--IPController.transport=ipc", f"--IPController.ip={warm.root}/zmq"]
    return ["--IPController.ip=127.0.0.1"]


class LabkitEngineSetLauncher(_WarmLauncher, EngineLauncher):
    """Fork engines from the warm process; report each exit at once, to ipyparallel's hub too."""

    _replacing = False

    async def start(self, n: int) -> list[int]:
        if self.state != "before":
            raise ProcessStateError(f"the engines were already started (state: {self.state})")
        self.get_warm()
        self.n = n
        self._alive: dict[str, int] = {}  # name -> index
        self.exits: dict[int, tuple[int, int]] = {}  # index -> (pid, code)
        self.observers: list[Any] = []  # called with (index, pid, code), in a thread of ours
        for index in range(n):
            self.start_one(index, f"--LabEngine.id={index}")
        return self.notify_start([])

    def name_of(self, index: int) -> str:
        return f"engine-{self.engine_set_id}-{index}"

    def start_one(self, index: int, *extra_args: str) -> None:
        """Fork the engine with this index; also replaces one that has ended.

        Only a first engine asks the hub for its index as id: the hub settles a dead engine's
        messages by id half a minute later, so an id must not be used twice.
        """
        name = self.name_of(index)
        assert self.warm is not None
        argv = [
            f"--profile-dir={self.profile_dir}",
            f"--cluster-id={self.cluster_id}",
            f"--LabEngine.id_file={self._id_file(name)}",
            "--log-level=30",
            *extra_args,
            *self.engine_args,
        ]
        env = {**self.get_env(), RANK_HINT: str(index)}
        self._alive[name] = index
        self.exits.pop(index, None)

        def on_exit(pid: int, code: int) -> None:
            self._exited(name, pid, code)

        self.warm.fork(name, "engine", argv, env, on_exit)

    def replace(self, indexes: Sequence[int]) -> None:
        """End some engines and start as many fresh ones, without ending the set."""
        assert self.warm is not None
        self._replacing = True
        self.warm.end([self.name_of(i) for i in indexes], self.stop_seconds_until_kill)
        for index in indexes:
            self.start_one(index)
        self._replacing = False

    def _id_file(self, name: str) -> str:
        assert self.warm is not None
        return str(self.warm.root / f"{name}.id")

    def _exited(self, name: str, pid: int, code: int) -> None:
        index = self._alive.pop(name, None)
        if index is None:
            return
        self.exits[index] = (pid, code)
        for observer in list(self.observers):
            observer(index, pid, code)
        if self.state != "running":
            return
        if not self._hub_gone():
            self._unregister(name)
        if not self._alive and not self._replacing:
            codes = [c for _, c in self.exits.values()]
            data = {"exit_code": next((c for c in codes if c), 0), "engines": dict(self.exits)}
            self._notify(data)

    def _hub_gone(self) -> bool:
        """Tell whether our controller has ended: news for it would wait for the bound below."""
        assert self.warm is not None
        controller = self.warm.children.get(CONTROLLER)
        return controller is not None and controller.exited.is_set()

    def _unregister(self, name: str) -> None:
        """Tell the hub that an engine is gone, as its nanny would have."""
        info = json.loads(self.environment.get("IPP_CONNECTION_INFO", "null"))
        try:
            engine_id = int(os.readlink(self._id_file(name)))
            os.unlink(self._id_file(name))
        except (OSError, ValueError):
            return  # it never registered
        if info is not None:
            unregister(info, engine_id)

    def signal(self, sig: int) -> None:
        assert self.warm is not None
        for name in list(self._alive):
            self.warm.signal(name, sig)

    def get_output(self, remove: bool = False) -> str:
        if self.warm is None:
            return ""
        outputs = {i: self.warm.output(self.name_of(i)) for i in range(self.n)}
        return "\n".join(f"engine {i}:\n{text}" for i, text in outputs.items() if text)

    async def stop(self) -> None:
        self.state = "stopping"
        await self._end(list(self._alive))
        self.notify_stop({"exit_code": 0, "engines": dict(self.exits)})
        self.release_warm()
