"""Start the ranks of a lab with one of ipyparallel's own launchers: "mpi", "slurm", "ssh" …"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base import times
from ..wire.processes import has_gpu
from . import external, ipyparallel_internals, private_folder, slurm, ssh
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

    def start_failure(self, size: int) -> str:
        if time.monotonic() > self._next_look:
            if why := trouble(self.engine_set):
                return f"{why}{self.log()}"
            self._next_look = time.monotonic() + times.LAUNCHER_LOOK
        if any_ended(self.engine_set):
            return (
                f'engines="{self.engines}" ended at start-up before all {size} ranks '
                f"were there{self.log()}"
            )
        return ""

    def delay(self) -> str:
        launcher = self.engine_set
        return slurm.delay(launcher.job_id) if has_job(launcher) else ""

    def refusal(self, error: Exception) -> str:
        return slurm.refusal(error) or ssh.refusal(error)

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
        if has_job(self.engine_set):
            return  # to cancel it is one command
        deadline = time.monotonic() + times.EXTERNAL_ENDED.seconds()
        with contextlib.suppress(Exception):
            client.send_signal("SIGKILL", targets="all", block=False)
            while client.ids and time.monotonic() < deadline:
                time.sleep(times.EXTERNAL_END_LOOK)
        forget_ended(self.engine_set, deadline)

    def end(self) -> None:
        if self.cluster is not None:
            with contextlib.suppress(Exception):
                self.cluster.stop_cluster_sync()
            self._forget_cluster()
        if self._folder is not None:
            self._folder.remove()


# -- how a launcher of ipyparallel fares ---------------------------------------------------------


def has_job(launcher: Any) -> bool:
    """Return whether the ranks of a launcher are a job of Slurm."""
    from ipyparallel.cluster.launcher import SlurmEngineSetLauncher

    return isinstance(launcher, SlurmEngineSetLauncher) and bool(launcher.job_id)


def trouble(launcher: Any) -> str:
    """Return why the ranks of a launcher will not come, "" if they may. Takes milliseconds."""
    if not has_job(launcher):
        return ""
    log = Path(launcher.output_file)
    return slurm.trouble(
        launcher.job_id, log.read_text("utf-8", errors="replace") if log.exists() else ""
    )


def any_ended(launcher: Any) -> bool:
    """Return whether a process has ended that a launcher of ipyparallel has started.

    Each is followed by a thread, which ends with it. What the launcher itself says comes late:
    it hears of an end when its event loop runs, in a plain Python program only now and then.
    """
    if launcher is None:
        return False
    if ipyparallel_internals.has_stopped(launcher):
        return True
    threads = map(ipyparallel_internals.thread_of, _processes(launcher).values())
    return any(thread is not None and not thread.is_alive() for thread in threads)


def forget_ended(launcher: Any, deadline: float) -> None:
    """Wait for the processes of a launcher up to ``deadline``; let it forget those that ended.

    To stop one, ipyparallel opens several connections to its host, also if it is gone.
    """
    for key, one in _processes(launcher).items():
        thread = ipyparallel_internals.thread_of(one)
        if thread is None or one is launcher:
            continue
        thread.join(max(0.0, deadline - time.monotonic()))
        if not thread.is_alive():
            ipyparallel_internals.forget(one)
            launcher.launchers.pop(key, None)


def _processes(launcher: Any) -> dict[str, Any]:
    """Return the launchers of single processes behind a launcher of a set."""
    return dict(getattr(launcher, "launchers", {"": launcher}))
