"""Start, replace and end the processes of a lab.

:class:`ForkedLauncher` forks the ranks from one warm process (``engines="local"``);
:class:`labkit.launch.external_launcher.ExternalLauncher` leaves it to one of ipyparallel's own
launchers.
"""

from __future__ import annotations

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ipyparallel as ipp
from traitlets.config import Config

from ..base import interrupts, times
from ..base.errors import StartError
from ..base.rank_names import how_to_replace
from ..wire.processes import has_gpu
from ..wire.protocol import CLIENT
from ..wire.state import describe_exit
from . import ipyparallel_internals, preconditions
from .ipp_launchers import LabkitControllerLauncher, LabkitEngineSetLauncher
from .private_folder import PROFILE
from .warm_process import CONTROLLER, QUIET, WarmProcess


class Launcher(ABC):
    """Starts, replaces and ends the controller and the ranks of one lab.

    Nothing of it blocks for longer than a launcher's command takes: whoever waits for the ranks
    asks :meth:`start_failure` meanwhile.
    """

    engines: str  #: as the user calls it
    #: Whether some ranks can be replaced while the others keep their variables.
    replaces_some: bool

    def __init__(self) -> None:
        self.cluster: Any = None  #: the ``ipyparallel.Cluster``, once started
        #: Called with (process id, exit code) when a rank ends, where that is seen from here.
        self.on_exit: Callable[[int, int], None] | None = None

    # -- before the start -------------------------------------------------------------------

    @abstractmethod
    def count_gpus(self) -> int:
        """Count this machine's GPUs without initialising anything in this process."""

    # -- start ------------------------------------------------------------------------------

    @abstractmethod
    def start(self, size: int) -> None:
        """Start the controller and so many ranks; they are not connected yet.

        Raises
        ------
        LabError
            If it is clear at once that they will not come. What came so far ends with
            :meth:`end`.
        """

    def _make_cluster(self, root: Path, **settings: Any) -> None:
        """Make the ``ipyparallel.Cluster``, with its files in ``root``; nothing starts yet."""
        profile = root / PROFILE
        with contextlib.suppress(FileExistsError):
            profile.mkdir(mode=0o700)
        self.cluster = ipp.Cluster(
            cluster_id="",
            cluster_file="",
            profile_dir=str(profile),
            load_profile=False,
            shutdown_atexit=False,
            delay=0,
            log=_quiet_log(),
            **settings,
        )

    def connect(self) -> Any:
        """Return an ``ipyparallel.Client`` of the controller."""
        # All that it needs is in the lab's folder; else it looks for, or makes, one in the home.
        return self.cluster.connect_client_sync(ipython_dir=self.cluster.profile_dir)

    @property
    def timeout(self) -> float:
        """Seconds that the user gives the ranks to connect (ipyparallel's own setting)."""
        return float(self.cluster.engine_timeout)

    @property
    def engine_set(self) -> Any:
        """ipyparallel's launcher of the ranks, None before the start."""
        return None if self.cluster is None else self.cluster.engine_set

    @abstractmethod
    def start_failure(self, size: int) -> str:
        """Return why not all of the ranks will connect, "" if they may."""

    def delay(self) -> str:
        """Return why ranks are not there yet, "" if nothing is known."""
        return ""

    def refusal(self, error: Exception) -> str:
        """Put what a command said at the start into a sentence, "" if it is none that is known."""
        return ""

    def record_folder(self) -> str:
        """Name the folder for what shall outlive a rank (``RECORD_FOLDER``), "" if none."""
        return ""

    def signal(self, pid: int, signum: int) -> bool:
        """Send a signal to a rank's process; return whether it is in reach and has it."""
        return False

    def clients(self) -> list[str]:
        """List the clients that have connected to the controller; none where nobody knows."""
        return []

    def log(self) -> str:
        """Return the end of what the ranks have written, as the rest of a sentence."""
        text = self.engine_set.get_output().strip() if self.engine_set is not None else ""
        return f"; its log ends:\n{text[-1500:]}" if text else "."

    def check_preload(self) -> None:  # noqa: B027 (most have nothing to check)
        """Raise StartError if a module could not be imported for all ranks at once."""

    # -- while it runs ----------------------------------------------------------------------

    def controller_failure(self) -> str:
        """Return how the controller has ended, "" while it runs or nothing is known."""
        return ""

    @abstractmethod
    def remedy(self, ranks: Sequence[int]) -> str:
        """Return what to do about ranks that have ended or do not answer."""

    def no_restart_reason(self) -> str:
        """Return why no fresh rank could start, "" if one may."""
        return ""

    @abstractmethod
    def replace(self, client: Any, hints: Sequence[int | None]) -> set[int]:
        """End ranks, by the number that their launcher gave them, and start as many fresh ones.

        Returns
        -------
        set of int
            Engines that have ended though the controller may still list them.
        """

    # -- end --------------------------------------------------------------------------------

    def end_ranks(self, client: Any) -> None:  # noqa: B027 (most need no client)
        """End the ranks where that needs a client, which is closed afterwards."""

    @abstractmethod
    def end(self) -> None:
        """End every process and remove what is on disk. Safe to call twice."""

    def _forget_cluster(self) -> None:
        """Release the cluster, whose processes have ended."""
        if self.cluster is not None:
            self.cluster.engines.clear()
            self.cluster.controller = None
            ipyparallel_internals.end_thread(self.cluster, times.KILLED.seconds())


class ForkedLauncher(Launcher):
    """Controller and ranks are children of a warm process, which sees how each ends.

    Parameters
    ----------
    warm
        The warm process, already starting. It ends with the lab.
    """

    engines = "local"
    replaces_some = True

    def __init__(self, warm: WarmProcess) -> None:
        super().__init__()
        self.warm = warm

    def count_gpus(self) -> int:
        if not has_gpu():
            return 0
        path = self.warm.root / "gpus"
        argv = ["labkit.rank.setup:write_gpu_count", str(path)]
        child = self.warm.fork("gpus", "call", argv)
        interrupts.wait_by(child.exited.wait, times.FORKED)
        return int(path.read_text()) if path.exists() else 0

    def start(self, size: int) -> None:
        config = Config()
        config.LabkitControllerLauncher.controller_args = QUIET
        config.LabkitEngineSetLauncher.engine_args = QUIET
        # Classes: to find one by its name, ipyparallel reads what every package has registered.
        self._make_cluster(
            self.warm.root,
            engines=LabkitEngineSetLauncher,
            controller=LabkitControllerLauncher,
            config=config,
        )
        self.cluster.warm = self.warm
        self.warm.users.add(self)  # it ends with the lab, not with its last launcher
        self.cluster.start_controller_sync()
        self._wait_for_controller()
        self.cluster.start_engines_sync(size)
        self.engine_set.observers.append(self._observe)

    def _wait_for_controller(self) -> None:
        """Wait until it has written how to reach it, or has ended: the engines need it."""
        controller = self.cluster.controller
        files = [Path(path) for path in controller.connection_files.values()]

        def is_written(path: Path) -> bool:
            return path.exists() and path.stat().st_size > 0

        def is_there(seconds: float) -> bool:
            deadline = time.monotonic() + seconds
            while controller.poll() is None and not all(map(is_written, files)):
                if time.monotonic() > deadline:
                    return False
                time.sleep(times.FILE_LOOK)
            return True

        interrupts.wait_by(is_there, times.FORKED)

    def _observe(self, index: int, pid: int, code: int) -> None:
        if self.on_exit is not None:
            self.on_exit(pid, code)

    def start_failure(self, size: int) -> str:
        if exits := self.engine_set.exits:
            index, (_, code) = next(iter(exits.items()))
            return f"Rank {index} ended at start-up ({describe_exit(code)}){self.log()}"
        return self.warm.how_ended() if self.warm.closed.is_set() else ""

    def log(self) -> str:
        """Return first which limit of memory may be why ranks did not start."""
        limit = preconditions.memory_limit()
        return f"{limit and f'. {limit}'}{super().log()}"

    def signal(self, pid: int, signum: int) -> bool:
        return self.warm.signal_process(pid, signum)

    def record_folder(self) -> str:
        return str(self.warm.root)

    def clients(self) -> list[str]:
        return [path.name for path in self.warm.root.glob(f"{CLIENT}*")]

    def check_preload(self) -> None:
        if self.warm.problems:
            module, problem = next(iter(self.warm.problems.items()))
            raise StartError(f"preload: cannot import {module!r} ({problem}).")

    def controller_failure(self) -> str:
        child = self.warm.children.get(CONTROLLER)
        # The end of the warm process itself shows in the ranks that it took along.
        if self.warm.process.returncode is None and child and child.code is not None:
            return describe_exit(child.code)
        return ""

    def remedy(self, ranks: Sequence[int]) -> str:
        if self.warm.closed.is_set():  # nobody could start them
            return "labkit.start() gives you a new lab."
        return f"{how_to_replace(ranks)}; the others keep their variables."

    def no_restart_reason(self) -> str:
        why = preconditions.folder_gone_reason(self.warm.process.pid)
        return why and (
            f"No fresh rank can start, because the folder in which the lab has started is gone "
            f"({why}). os.chdir(…) to one that is there; labkit.start() gives you a new lab."
        )

    def replace(self, client: Any, hints: Sequence[int | None]) -> set[int]:
        self.engine_set.replace(hints)
        return set()

    def end(self) -> None:
        if self.cluster is not None:
            # The exits that follow are ours: nobody has to hear of them.
            for launcher in (self.cluster.engine_set, self.cluster.controller):
                if launcher is not None:
                    launcher.state = "after"
        self.warm.stop()
        self._forget_cluster()


def _quiet_log() -> logging.Logger:
    """Return a logger that keeps ipyparallel's own news out of the notebook."""
    log = logging.getLogger("labkit.ipyparallel")
    log.setLevel(logging.CRITICAL)
    log.propagate = False
    return log
