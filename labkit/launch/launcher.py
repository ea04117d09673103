"""Say what a lab asks of what starts its ranks.

Two kinds answer: :class:`labkit.launch.forked_launcher.ForkedLauncher` forks the ranks from one
warm process, :class:`labkit.launch.external_launcher.ExternalLauncher` leaves it to one of
ipyparallel's own launchers.
"""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ipyparallel as ipp

from .. import times
from . import ipyparallel_internals
from .private_folder import PROFILE


class Launcher(ABC):
    """Starts, replaces and ends the controller and the ranks of one lab.

    Nothing of it blocks for longer than a launcher's command takes: whoever waits for the ranks
    asks :meth:`why_not_coming` meanwhile.
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
    def why_not_coming(self, size: int) -> str:
        """Say why not all of the ranks will connect, "" if they may."""

    @abstractmethod
    def delay(self) -> str:
        """Say why ranks are not there yet, "" if nothing is known."""

    @abstractmethod
    def refusal(self, error: Exception) -> str:
        """Put what a command said at the start into a sentence, "" if it is none that is known."""

    def record_folder(self) -> str:
        """Name the folder for what shall outlive a rank (``RECORD_FOLDER``), "" if none."""
        return ""

    def signal(self, pid: int, signum: int) -> bool:
        """Send a signal to a rank's process; tell whether it is in reach and has it."""
        return False

    def clients(self) -> list[str]:
        """List the clients that have connected to the controller; none where nobody knows."""
        return []

    def log(self) -> str:
        """Return the end of what the ranks have written, as the rest of a sentence."""
        text = self.engine_set.get_output().strip() if self.engine_set is not None else ""
        return f"; its log ends:\n{text[-1500:]}" if text else "."

    @abstractmethod
    def check_preload(self) -> None:
        """Raise StartError if a module could not be imported for all ranks at once."""

    # -- while it runs ----------------------------------------------------------------------

    @abstractmethod
    def why_no_controller(self) -> str:
        """Say how the controller has ended, "" while it runs or nothing is known."""

    @abstractmethod
    def remedy(self, ranks: Sequence[int]) -> str:
        """Say what to do about ranks that have ended or do not answer."""

    def why_no_fresh_rank(self) -> str:
        """Say why no fresh rank could start, "" if one may."""
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

    @abstractmethod
    def end_ranks(self, client: Any) -> None:
        """End the ranks where that needs a client, which is closed afterwards."""

    @abstractmethod
    def end(self) -> None:
        """End every process and remove what is on disk. Safe to call twice."""

    def _forget_cluster(self) -> None:
        """Let go of the cluster, whose processes have ended."""
        if self.cluster is not None:
            self.cluster.engines.clear()
            self.cluster.controller = None
            ipyparallel_internals.end_thread(self.cluster, times.KILLED.seconds())


def _quiet_log() -> logging.Logger:
    """Return a logger that keeps ipyparallel's own news out of the notebook."""
    log = logging.getLogger("labkit.ipyparallel")
    log.setLevel(logging.CRITICAL)
    log.propagate = False
    return log
