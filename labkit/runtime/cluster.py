"""Start and stop the processes of a lab, and keep the map of rank to engine.

This module knows ipyparallel; ``lab`` and everything above it knows ranks only.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import ipyparallel as ipp
import psutil

from ..errors import LabError, LabStopped, StartError
from ..launch import (
    external,
    external_state,
    ipp_launchers,
    ipyparallel_internals,
    private_folder,
)
from ..launch.placement import Place, place_ranks
from ..launch.warm_process import KILL_SECONDS, WarmProcess, describe_exit
from ..rank_names import label
from ..wire import errands
from ..wire.features import Missing
from . import output

R = TypeVar("R")

_log = logging.getLogger(__name__)

#: Seconds for every engine to connect, and for a short errand on a rank that is idle.
START_SECONDS = 120.0
ERRAND_SECONDS = 30.0
#: Seconds between looks at what a launcher of ipyparallel knows of its ranks.
TROUBLE_SECONDS = 2.0
#: Seconds for ranks to be gone after they were told to.
END_SECONDS = 5.0
#: How a rank has ended that nobody saw end.
LOST = "its host, or with the connection to it"


class RankCluster:
    """The processes behind a lab.

    Parameters
    ----------
    size
        Number of ranks.
    engines
        The ipyparallel launcher: "labkit" (forked from one warm process), "local", "mpi",
        "slurm", "ssh" or any other that is registered.
    warm
        The warm process, already starting, for "labkit".
    config
        The user's own settings of ipyparallel's launchers: class, trait, value.
    """

    def __init__(
        self,
        size: int,
        engines: str,
        warm: WarmProcess | None,
        config: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.size = size
        self.engines = engines
        self.warm = warm
        self.places: list[Place] = []
        self.deaths: dict[int, str] = {}  #: rank -> how its process ended
        self.missing: list[Missing] = []  #: features that are off, here or on a rank
        self._left: set[int] = set()  # engines that were told to end
        self._folder: private_folder.PrivateFolder | None = None
        if warm is None:
            self._folder = private_folder.PrivateFolder()
            root = self._folder.path
        else:
            root = warm.root
        try:
            settings = external.config(engines, config, size, root)
        except BaseException:
            if self._folder is not None:
                self._folder.remove()
            raise
        self.cluster = ipp.Cluster(
            engines=engines,
            controller="labkit" if warm else "local",
            cluster_id="",
            cluster_file="",
            profile_dir=str(root / "profile"),
            load_profile=False,
            shutdown_atexit=False,
            delay=0,
            log=_quiet_log(),
            config=settings,
        )
        self.cluster.warm = warm
        self._client: Any = None

    @property
    def client(self) -> Any:
        """The ``ipyparallel.Client``.

        Raises
        ------
        LabStopped
            If the controller has ended: a request would never have an answer.
        """
        warm = self.warm
        child = warm.children.get(ipp_launchers.CONTROLLER) if warm else None
        # The end of the warm process itself shows in the ranks that it took along.
        if warm and warm.process.returncode is None and child and child.code is not None:
            how = describe_exit(child.code)
            raise LabStopped(
                f"The controller, which carries messages to the ranks, has ended with {how}; "
                "call labkit.start() again."
            )
        return self._client

    # -- start ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start controller and engines; return when every rank has its place.

        Raises
        ------
        StartError
            If they do not come up, with what the first one to fail wrote.
        """
        began = time.monotonic()
        _log.info("starts %d ranks, engines=%r", self.size, self.engines)
        with contextlib.suppress(FileExistsError):
            Path(self.cluster.profile_dir).mkdir(mode=0o700)
        try:
            self.cluster.start_controller_sync()
            _log.debug("the controller runs after %.3f s", time.monotonic() - began)
            self.cluster.start_engines_sync(self.size)
            deadline = time.monotonic() + self.start_seconds()
            self._observe()
            self._client = self.cluster.connect_client_sync()
            ipyparallel_internals.on_notice(self._client, "labkit_exit", self._on_notice)
            output.collect(self._client)
            self._wait_for_ranks(deadline)
            _log.debug("every rank is connected after %.3f s", time.monotonic() - began)
            self._map()
            _log.info(
                "%d ranks have their places after %.3f s", self.size, time.monotonic() - began
            )
        except LabError as error:
            _log.info("the ranks did not start: %s", error)
            raise
        except Exception as error:
            _log.info("the ranks did not start", exc_info=True)
            if refusal := external_state.refusal(error):
                raise StartError(refusal) from None
            raise StartError(
                f"The ranks did not start: {error}{external_state.log_of(self.cluster.engine_set)}"
            ) from error

    def _wait_for_ranks(self, deadline: float) -> None:
        """Wait until all ranks are connected.

        Raises
        ------
        StartError
            As soon as it is certain that one will not come, or at the deadline, of
            ``time.monotonic``.
        """
        launcher, next_look = self.cluster.engine_set, 0.0
        while len(self.connected()) < self.size:
            if time.monotonic() > next_look:
                if why := external_state.trouble(launcher):
                    raise StartError(f"{why}{external_state.log_of(launcher)}")
                next_look = time.monotonic() + TROUBLE_SECONDS
                _log.debug("%d of %d ranks are connected", len(self.connected()), self.size)
            exits = getattr(launcher, "exits", None)
            if exits:
                index, (_, code) = next(iter(exits.items()))
                how = describe_exit(code)
                raise StartError(
                    f"Rank {index} ended at start-up ({how}){external_state.log_of(launcher)}"
                )
            if exits is None and external_state.any_ended(launcher):
                raise StartError(
                    f'engines="{self.engines}" ended at start-up before all {self.size} ranks '
                    f"were there{external_state.log_of(launcher)}"
                )
            if self.warm is not None and self.warm.closed.is_set():
                raise StartError(self.warm.how_ended())
            if time.monotonic() > deadline:
                why, log = external_state.delay(launcher), external_state.log_of(launcher)
                raise StartError(
                    f"Only {len(self.connected())} of {self.size} ranks connected within "
                    f"{self.start_seconds():.0f} s{why and f': {why}'}{log}"
                )
            time.sleep(0.005)

    def start_seconds(self) -> float:
        """Return how long to wait for the ranks; ipyparallel's own setting can only prolong it."""
        return max(START_SECONDS, self.cluster.engine_timeout)

    def _observe(self) -> None:
        launcher = self.cluster.engine_set
        if isinstance(launcher, ipp_launchers.LabkitEngineSetLauncher):
            launcher.observers.append(self._on_exit)

    def _on_exit(self, index: int, pid: int, code: int) -> None:
        for place in self.places:
            if place.pid == pid:
                self.deaths[place.rank] = describe_exit(code)
                _log.info("rank %d ended with %s", place.rank, self.deaths[place.rank])

    def _on_notice(self, message: Mapping[str, Any]) -> None:
        """Note that a rank has ended, as the controller heard (``OwnedController``)."""
        engine, code = message["content"]["engine"], message["content"]["code"]
        for place in self.places:
            if place.engine == engine:
                how = LOST if code is None else describe_exit(code)
                self.deaths.setdefault(place.rank, how)
                _log.info("the controller says that rank %d ended with %s", place.rank, how)

    def connected(self) -> list[int]:
        """List the engines that are there; of those that have left, the hub may not know yet."""
        return [engine for engine in self.client.ids if engine not in self._left]

    def _map(self) -> None:
        """Ask every engine who it is and decide who is which rank."""
        ids = self.connected()
        answers = self.errand(dict.fromkeys(ids, errands.describe()))
        told = [missing for answer in answers for missing in answer.missing]
        self.missing = list(dict.fromkeys([*ipyparallel_internals.check(), *told]))
        self.places = place_ranks(dict(zip(ids, answers, strict=True)))
        for place in self.places:
            _log.debug("%s", place)
        for missing in self.missing:
            _log.info("%s", missing)
        self.deaths.clear()

    # -- errands ----------------------------------------------------------------------------

    def errand(self, calls: Mapping[int, errands.Call[R]]) -> list[R]:
        """Run a short function of the ranks on some engines, each its own call; return what they
        return, in the order of ``calls``.

        Raises
        ------
        LabError
            If one does not answer within ``ERRAND_SECONDS`` or fails.
        """
        began = time.monotonic()
        results = {}
        for engine, call in calls.items():
            view = self.client.direct_view(engine)
            results[engine] = view.apply_async(errands.on_rank, call)
        deadline = time.monotonic() + ERRAND_SECONDS
        out = []
        for engine, result in results.items():
            if not result.wait(max(0.0, deadline - time.monotonic())):
                raise LabError(
                    f"{self.name_of(engine)} does not answer: it is busy or blocked; "
                    "lab.restart() gives you fresh ranks."
                )
            try:
                out.append(result.get())
            except ipp.error.RemoteError as error:
                name = self.name_of(engine)
                raise LabError(f"{name}: {error.ename}: {error.evalue}") from None
        name = next((call.name for call in calls.values()), "nothing")
        _log.debug("%s on engines %s took %.3f s", name, list(calls), time.monotonic() - began)
        return out

    def name_of(self, engine: int) -> str:
        rank = next((p.rank for p in self.places if p.engine == engine), None)
        return f"engine {engine}" if rank is None else f"rank {rank}"

    def is_busy(self, rank: int) -> bool:
        """Tell whether a rank has anything to do: a request of this client without a reply."""
        engine, client = self.places[rank].engine, self.client
        return rank not in self.deaths and ipyparallel_internals.has_work(client, engine)

    def busy_ranks(self) -> list[int]:
        """List the ranks that have something to do."""
        return [rank for rank in range(self.size) if self.is_busy(rank)]

    def local_process(self, rank: int) -> psutil.Process | None:
        """Return a rank's process, None if it is on another host or has ended."""
        place = self.places[rank]
        if rank in self.deaths or place.host != socket.gethostname():
            return None
        with contextlib.suppress(psutil.Error):
            return psutil.Process(place.pid)
        return None

    # -- restart and stop -------------------------------------------------------------------

    def restart(self, ranks: Sequence[int] | None = None) -> None:
        """End some engines (all if None) and start as many fresh ones; the controller stays.

        Raises
        ------
        LabError
            If only some are to be replaced and their launcher cannot do that.
        """
        launcher = self.cluster.engine_set
        client = self.client  # raises if there is no point in fresh ranks
        deadline = time.monotonic() + self.start_seconds()
        ours = isinstance(launcher, ipp_launchers.LabkitEngineSetLauncher)
        if ranks is not None and not ours:
            raise LabError(
                f'engines="{self.engines}" replaces all ranks or none: lab.restart() does that.'
            )
        leaving = [p for p in self.places if ranks is None or p.rank in ranks]
        staying = [p for p in self.places if p not in leaving]
        _log.info("replaces %s", label([p.rank for p in leaving]))
        self.places = staying  # an exit that is ours is no death
        if ours:
            launcher.replace([p.hint for p in leaving])
        else:
            self._end_ranks(client)
            self._left.update(client.ids)
            self.cluster.restart_engines_sync()
        before = {p.engine for p in leaving}
        while before & set(self.connected()) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._wait_for_ranks(deadline)
        self._map()
        _log.info("the fresh ranks have their places")

    def close(self) -> None:
        """End every process of the lab and remove its folder. Safe to call twice."""
        _log.info("ends the ranks")
        client, self._client = self._client, None
        if client is not None:
            if self.warm is None:
                self._end_ranks(client)
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                client.close(linger=0)
        if self.warm is not None:
            # The exits that follow are ours: nobody has to hear of them.
            for launcher in (self.cluster.engine_set, self.cluster.controller):
                if launcher is not None:
                    launcher.state = "after"
            self.warm.stop()
        else:
            with contextlib.suppress(Exception):
                self.cluster.stop_cluster_sync()
        self.cluster.engines.clear()
        self.cluster.controller = None
        ipyparallel_internals.end_thread(self.cluster, KILL_SECONDS)
        if self._folder is not None:
            self._folder.remove()
        _log.info("the ranks have ended")

    def _end_ranks(self, client: Any) -> None:
        """End the ranks by way of the controller: on hosts of ipyparallel's own launchers that
        is much quicker than one connection each, and blocked ranks end too."""
        self.places = []  # these exits are no deaths
        if external_state.has_job(self.cluster.engine_set):
            return  # to cancel it is one command
        deadline = time.monotonic() + END_SECONDS
        with contextlib.suppress(Exception):
            client.send_signal("SIGKILL", targets="all", block=False)
            while client.ids and time.monotonic() < deadline:
                time.sleep(0.02)
        external_state.forget_ended(self.cluster.engine_set, deadline)


def _quiet_log() -> logging.Logger:
    """Return a logger that keeps ipyparallel's own news out of the notebook."""
    log = logging.getLogger("labkit.ipyparallel")
    log.setLevel(logging.CRITICAL)
    log.propagate = False
    return log


def gpu_count(warm: WarmProcess | None) -> int:
    """Count this machine's GPUs without initialising anything in this process."""
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return 0
    if warm is None:
        import torch

        return torch.cuda.device_count()
    path = warm.root / "gpus"
    argv = ["labkit.rank.setup:write_gpu_count", str(path)]
    child = warm.fork("gpus", "call", argv)
    child.exited.wait(START_SECONDS)
    return int(path.read_text()) if path.exists() else 0
