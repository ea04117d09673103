"""Keep the map of rank to engine of the processes that a launcher starts and ends.

This module knows ipyparallel; ``lab`` and everything above it knows ranks only.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import ipyparallel as ipp
import psutil

from ..base import interrupts, times
from ..base.clock import Clock
from ..base.errors import LabError, LabStopped, StartError
from ..base.rank_names import label
from ..launch import few_messages, ipyparallel_internals
from ..launch.launcher import Launcher
from ..launch.placement import Place, place_ranks
from ..wire import remote_calls
from ..wire.memory_files import Address, MemoryFile, MemoryFileError
from ..wire.state import Missing, describe_exit
from . import output
from .output import LateOutput

R = TypeVar("R")

_log = logging.getLogger(__name__)


def _memory_file() -> AbstractContextManager[MemoryFile | None]:
    """Return a new file in memory, None where there can be none."""
    try:
        return MemoryFile.create()
    except MemoryFileError as error:
        _log.info("no file in memory: %s", error)
        return contextlib.nullcontext()


class RankCluster:
    """The processes behind a lab. Made by :meth:`start`."""

    def __init__(self, size: int, launcher: Launcher, client: Any) -> None:
        self.size = size
        self.launcher = launcher
        self.places: list[Place] = []
        self.autoreload = False  #: whether ranks reload modules whose files have changed
        #: rank -> exit code of its process: negative for a signal, None if nobody saw it end
        self.deaths: dict[int, int | None] = {}
        self.asked: set[int] = set()  #: ranks that something was sent to since all were idle
        self.missing: list[Missing] = []  #: features that are off, here or on a rank
        self._clients: set[str] = set()  # that connected while the lab started: its own
        self._left: set[int] = set()  # engines that have ended, which the hub may still list
        self.replaced: list[Place] = []  #: whose successors have no places yet
        self.clock = Clock()  #: its waits look again with each reply, death and engine
        self.measure_after = 0.0  #: of the clock, see ``control.measure_pace``
        self._client = client
        launcher.on_exit = self._on_exit
        ipyparallel_internals.on_notice(client, "labkit_exit", self._on_notice)
        output.collect(client)
        self.late = LateOutput(client)  #: what ranks write when nobody waits for it
        ipyparallel_internals.on_new_future(client, self._note_request)
        ipyparallel_internals.on_engines(client, self.clock.notify)

    @classmethod
    def start(cls, size: int, launcher: Launcher) -> RankCluster:
        """Start controller and engines; return when every rank has its place.

        StartError: if they do not come up, with what the first one to fail wrote. All processes
        have ended then.
        """
        began = time.monotonic()
        _log.info("starts %d ranks, engines=%r", size, launcher.engines)
        with contextlib.ExitStack() as undo:
            undo.callback(launcher.end)
            try:
                launcher.start(size)
                cluster = cls(size, launcher, launcher.connect())
                _log.debug("the controller runs after %.3f s", time.monotonic() - began)
                undo.callback(cluster.close)
                cluster.wait_for_ranks(cluster.start_seconds())
                _log.debug("every rank is connected after %.3f s", time.monotonic() - began)
                cluster._map()
                cluster._clients = set(launcher.clients())
            except LabError as error:
                _log.info("the ranks did not start: %s", error)
                raise
            except Exception as error:
                _log.info("the ranks did not start", exc_info=True)
                if refusal := launcher.refusal(error):
                    raise StartError(refusal) from None
                raise StartError(f"The ranks did not start: {error}{launcher.log()}") from error
            undo.pop_all()
        _log.info("%d ranks have their places after %.3f s", size, time.monotonic() - began)
        return cluster

    @property
    def client(self) -> Any:
        """The ``ipyparallel.Client``.

        LabStopped: if the controller has ended: a request would never have an answer.
        """
        if how := self.launcher.controller_failure():
            raise LabStopped(
                f"The controller, which carries messages to the ranks, has ended with {how}; "
                "call labkit.start() again."
            )
        return self._client

    # -- start ------------------------------------------------------------------------------

    def wait_for_ranks(self, seconds: float) -> None:
        """Wait until all ranks are connected, for up to some seconds.

        StartError: as soon as it is certain that one will not come, or when the time is up.
        """
        launcher = self.launcher
        ask = self.clock.now() + times.ENGINES_ASKED

        def are_there() -> bool:
            nonlocal ask
            if len(self.connected()) >= self.size:
                return True
            if self.clock.now() > ask:
                ipyparallel_internals.ask_for_engines(self.client, self.clock.notify)
                ask = self.clock.now() + times.ENGINES_ASKED
            if why := launcher.start_failure(self.size):
                raise StartError(why)
            return False

        if not self.clock.wait_for(are_there, seconds):
            why = launcher.delay()
            raise StartError(
                f"Only {len(self.connected())} of {self.size} ranks connected within "
                f"{self.start_seconds():.0f} s{why and f': {why}'}{launcher.log()}"
            )

    def start_seconds(self) -> float:
        """Return how long to wait for the ranks; ipyparallel's own setting can only prolong it."""
        return max(times.START, self.launcher.timeout)

    def _note_request(self, future: Any) -> None:
        future.add_done_callback(lambda _: self.clock.notify())

    def _on_exit(self, pid: int, code: int) -> None:
        self._note_ends([p.rank for p in self.places if p.pid == pid], code)

    def _on_notice(self, message: Mapping[str, Any]) -> None:
        """Record that a rank has ended, as the controller heard (``OwnedController``)."""
        engine, code = message["content"]["engine"], message["content"]["code"]
        self._note_ends([p.rank for p in self.places if p.engine == engine], code)

    def _note_ends(self, ranks: Iterable[int], code: int | None) -> None:
        for rank in ranks:
            if self.deaths.get(rank) is None:  # what was heard first is as it was
                self.deaths[rank] = code
            _log.info("rank %d ended with %s", rank, describe_exit(code))
        self.clock.notify()

    def has_strangers(self) -> bool:
        """Return whether another client has connected to the controller, as far as known."""
        return bool(set(self.launcher.clients()) - self._clients)

    def connected(self) -> list[int]:
        """List the engines that are there; of those that have left, the hub may not know yet."""
        return [engine for engine in self.client.ids if engine not in self._left]

    def _map(self) -> None:
        """Ask every engine who it is and decide who is which rank."""
        ids = self.connected()
        with _memory_file() as file:
            call = remote_calls.describe(None if file is None else file.address)
            answers = self.remote_call(dict.fromkeys(ids, call))
        told = [missing for answer in answers for missing in answer.missing]
        self.missing = list(dict.fromkeys([*ipyparallel_internals.check(), *told]))
        self.places = place_ranks(dict(zip(ids, answers, strict=True)))
        for place in self.places:
            _log.debug("%s", place)
        for missing in self.missing:
            _log.info("%s", missing)
        self.deaths.clear()

    def off_reason(self, feature: str) -> str:
        """Return why a feature is off on the ranks (by its key), "" if it is on."""
        return next((str(missing) for missing in self.missing if missing.feature == feature), "")

    # -- remote calls ----------------------------------------------------------------------------

    def remote_call(self, calls: Mapping[int, remote_calls.Call[R]]) -> list[R]:
        """Run a short function of the ranks on some engines, each its own call; return what they
        return, in the order of ``calls``.

        LabError: if one does not answer within ``times.REMOTE_CALL`` or fails; within
        ``times.REMOTE_CALL_STOPPED`` when somebody has pressed stop and waits. KeyboardInterrupt:
        if it is interrupted where that is cancellable; the remote calls go on then.
        """
        if not calls:
            return []
        began = time.monotonic()
        asked = {engine: (call,) for engine, call in calls.items()}
        result = few_messages.apply(self.client, remote_calls.on_rank, asked)
        replies = dict(zip(calls, ipyparallel_internals.replies(result), strict=True))
        for engine, reply in replies.items():
            self.late.note(engine, reply)
            self.late.keep(reply)
        stopped = interrupts.has_come()
        seconds = times.REMOTE_CALL_STOPPED.seconds() if stopped else times.REMOTE_CALL

        def failed() -> dict[int, ipp.error.RemoteError]:
            there = {engine: reply.result() for engine, reply in replies.items() if reply.done()}
            return {e: r for e, r in there.items() if isinstance(r, ipp.error.RemoteError)}

        # The others may wait for one that has failed.
        self.clock.wait_for(lambda: failed() or all(r.done() for r in replies.values()), seconds)
        if found := failed():
            engine, error = next(iter(found.items()))
            kind = "" if error.ename == LabError.__name__ else f"{error.ename}: "
            raise LabError(f"{self.name_of(engine)}: {kind}{error.evalue}")
        if silent := [engine for engine, reply in replies.items() if not reply.done()]:
            raise LabError(
                f"{self.name_of(silent[0])} does not answer: it is busy or blocked; "
                "lab.restart() gives you fresh ranks."
            )
        out: list[R] = result.get()
        name = next((call.name for call in calls.values()), "nothing")
        _log.debug("%s on engines %s took %.3f s", name, list(calls), time.monotonic() - began)
        return out

    def shared_file(self, ranks: Iterable[int]) -> AbstractContextManager[MemoryFile | None]:
        """Return a new file that some ranks can open, None where not all of them can."""
        shared = all(self.places[rank].shares_memory for rank in ranks)
        return _memory_file() if shared else contextlib.nullcontext()

    @contextlib.contextmanager
    def result_files(self, ranks: Iterable[int]) -> Iterator[dict[int, Address]]:
        """Return a new file for each rank that can open one, for what it gives back."""
        with contextlib.ExitStack() as stack:
            files = {rank: stack.enter_context(self.shared_file([rank])) for rank in ranks}
            yield {rank: file.address for rank, file in files.items() if file is not None}

    def take_late(self) -> dict[int, dict[str, str]]:
        """Return what ranks have written since the last call that no cell has shown, by rank and
        stream."""
        found = self.late.take()
        ranks = {p.engine: p.rank for p in self.places}
        return {ranks[engine]: texts for engine, texts in found.items() if engine in ranks}

    def name_of(self, engine: int) -> str:
        rank = next((p.rank for p in self.places if p.engine == engine), None)
        return f"engine {engine}" if rank is None else f"rank {rank}"

    def is_busy(self, rank: int) -> bool:
        """Return whether a rank has anything to do: a request of this client without a reply."""
        engine, client = self.places[rank].engine, self.client
        return rank not in self.deaths and ipyparallel_internals.has_work(client, engine)

    def note_asked(self, ranks: Iterable[int]) -> None:
        """Record that something is about to be sent to some ranks."""
        self.asked = {*ranks, *(self.asked if self.busy_ranks() else ())}

    def busy_ranks(self) -> list[int]:
        """List the ranks that have something to do."""
        return [rank for rank in range(self.size) if self.is_busy(rank)]

    def free_ranks(self) -> list[int]:
        """List the ranks that are there and have nothing to do."""
        return [r for r in range(self.size) if r not in self.deaths and not self.is_busy(r)]

    def local_process(self, rank: int) -> psutil.Process | None:
        """Return a rank's process, None if it is on another host or has ended."""
        place = self.places[rank]
        if rank in self.deaths or place.host != socket.gethostname():
            return None
        with contextlib.suppress(psutil.Error):
            return psutil.Process(place.pid)
        return None

    def is_stopped(self, rank: int) -> bool:
        """Return whether a rank's process on this host is stopped: by SIGSTOP or a debugger."""
        process = self.local_process(rank)
        with contextlib.suppress(psutil.Error):
            return process is not None and process.status() == psutil.STATUS_STOPPED
        return False

    def signal(self, rank: int, signum: int) -> bool:
        """Send a signal to a rank by the system; return whether its process is in reach."""
        return rank not in self.deaths and self.launcher.signal(self.places[rank].pid, signum)

    # -- restart and stop -------------------------------------------------------------------

    def restart(self, ranks: Sequence[int] | None = None) -> None:
        """End some engines (all if None) and start as many fresh ones; the controller stays.

        If it is interrupted, :meth:`arrive` goes on with it.

        LabError: if only some are to be replaced and their launcher cannot do that.
        """
        client = self.client  # raises if there is no point in fresh ranks
        if ranks is not None and not self.launcher.replaces_some:
            raise LabError(
                f'engines="{self.launcher.engines}" replaces all ranks or none: lab.restart() '
                "does that."
            )
        if why := self.launcher.no_restart_reason():
            raise LabError(why)
        known = [*self.places, *self.replaced]
        leaving = [p for p in known if ranks is None or p.rank in ranks]
        _log.info("replaces %s", label([p.rank for p in leaving]))
        with interrupts.shielded():
            self.replaced += [p for p in leaving if p not in self.replaced]
            self.places = [p for p in self.places if p not in leaving]  # we end them: no deaths
            for place in leaving:
                self.deaths.pop(place.rank, None)
            self._left |= self.launcher.replace(client, [p.hint for p in leaving])
        self.arrive()

    def arrive(self) -> None:
        """Wait until the successors of all ranks that were replaced have their places.

        If this is interrupted or fails, another call goes on with it.
        """
        if not self.replaced:
            return
        deadline = self.clock.now() + self.start_seconds()
        before = {p.engine for p in self.replaced}
        self.clock.wait_for(lambda: not before & set(self.connected()), self.start_seconds())
        self.wait_for_ranks(deadline - self.clock.now())
        self._map()
        self.replaced = []
        _log.info("the fresh ranks have their places")

    def close(self) -> None:
        """End every process of the lab and remove its folder. Safe to call twice."""
        _log.info("ends the ranks")
        with interrupts.shielded():
            client, self._client = self._client, None
            if client is not None:
                self.places = []  # we end the ranks: no deaths
                self.launcher.end_ranks(client)
                with contextlib.suppress(Exception), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    client.close(linger=0)
            self.launcher.end()
        _log.info("the ranks have ended")
