"""Start the ranks of a lab with one of ipyparallel's own launchers: "mpi", "slurm", "ssh" …"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .. import times
from ..wire.machine import has_gpu
from . import external, external_state, private_folder
from .launcher import Launcher


class ExternalLauncher(Launcher):
    """The controller is a child of this process; the ranks are wherever their launcher puts them.

    How a rank ends the controller hears, and tells the client (``OwnedController``).

    Parameters
    ----------
    engines
        The ipyparallel launcher: "local", "mpi", "slurm", "ssh" or any other that is registered.
    config
        The user's own settings of ipyparallel's launchers: class, trait, value.
    """

    replaces_some = False

    def __init__(self, engines: str, config: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__()
        self.engines = engines
        self.config = config
        self._folder: private_folder.PrivateFolder | None = None
        self._next_look = 0.0

    def count_gpus(self) -> int:
        if not has_gpu():
            return 0
        import torch

        return torch.cuda.device_count()

    def start(self, size: int) -> None:
        private_folder.sweep()
        self._folder = private_folder.PrivateFolder()
        root = self._folder.path
        settings = external.config(self.engines, self.config, size, root)
        self._make_cluster(root, engines=self.engines, controller="local", config=settings)
        self.cluster.start_controller_sync()
        self.cluster.start_engines_sync(size)

    def why_not_coming(self, size: int) -> str:
        if time.monotonic() > self._next_look:
            if why := external_state.trouble(self.engine_set):
                return f"{why}{self.log()}"
            self._next_look = time.monotonic() + times.LAUNCHER_LOOK
        if external_state.any_ended(self.engine_set):
            return (
                f'engines="{self.engines}" ended at start-up before all {size} ranks '
                f"were there{self.log()}"
            )
        return ""

    def delay(self) -> str:
        return external_state.delay(self.engine_set)

    def refusal(self, error: Exception) -> str:
        return external_state.refusal(error)

    def check_preload(self) -> None:
        pass

    def why_no_controller(self) -> str:
        return ""

    def remedy(self, ranks: Sequence[int]) -> str:
        return "lab.restart() gives you fresh ranks."

    def replace(self, client: Any, hints: Sequence[int | None]) -> set[int]:
        self.end_ranks(client)
        ended = set(client.ids)
        self.cluster.restart_engines_sync()
        return ended

    def end_ranks(self, client: Any) -> None:
        """End the ranks by way of the controller: on hosts of ipyparallel's own launchers that
        is much quicker than one connection each, and blocked ranks end too."""
        if external_state.has_job(self.engine_set):
            return  # to cancel it is one command
        deadline = time.monotonic() + times.EXTERNAL_ENDED.seconds()
        with contextlib.suppress(Exception):
            client.send_signal("SIGKILL", targets="all", block=False)
            while client.ids and time.monotonic() < deadline:
                time.sleep(times.EXTERNAL_END_LOOK)
        external_state.forget_ended(self.engine_set, deadline)

    def end(self) -> None:
        if self.cluster is not None:
            with contextlib.suppress(Exception):
                self.cluster.stop_cluster_sync()
            self._forget_cluster()
        if self._folder is not None:
            self._folder.remove()
