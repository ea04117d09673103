"""Watch the workers of torchrun for deadlocks, as the ranks of a lab are watched."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import psutil

from ..base import times
from ..base.clock import SYSTEM
from ..base.errors import Deadlock, Interrupted, SuspectedDeadlock, red
from ..deadlock import message
from ..deadlock.case import Case
from ..deadlock.cause import likely_cause
from ..deadlock.samples import renumber
from ..wire.encoding import decode, encode
from ..wire.protocol import SOCKET, Hello
from ..wire.requests import AskSample, Question
from ..wire.samples import Sample
from ..wire.state import RankState
from .cluster import RankCluster
from .control import Posted, waiting
from .watchdog import Suspicion, Watcher


class _Worker:
    """One worker that has said who it is, and the questions that it has not answered."""

    def __init__(self, line: socket.socket, hello: Hello) -> None:
        self.hello = hello
        self.gone_since: float | None = None
        self._line = line
        self._numbers = itertools.count()
        self._open: dict[int, concurrent.futures.Future[Any]] = {}
        self._closed = False

    def post(self, question: Question[Any]) -> concurrent.futures.Future[Any] | None:
        """Ask it; None if it cannot be asked any more."""
        number, future = next(self._numbers), concurrent.futures.Future[Any]()
        self._open[number] = future
        asked = {"id": number, "request": question.request, "content": encode(question)}
        try:
            self._line.sendall(json.dumps(asked).encode() + b"\n")
        except OSError:
            self._closed = True
            return None
        return future

    def take(self, answer: dict[str, Any]) -> None:
        """Take in an answer."""
        if (future := self._open.pop(answer["id"], None)) is not None:
            future.set_result(answer)

    def close(self) -> None:
        self._closed = True

    def is_gone(self) -> bool:
        """Return whether its process has ended, for certain and long enough ago."""
        if not self._closed or not _has_ended(self.hello.pid):
            return False
        self.gone_since = self.gone_since or SYSTEM.now()
        return SYSTEM.now() - self.gone_since > times.WORKER_ENDED_WELL.seconds()


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


class _Ranks:
    """What the watchdog has to know of the workers of one attempt.

    Those that have not come yet, and those that do without torch, may do anything.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.clock = SYSTEM
        self.workers: dict[int, _Worker] = {}

    @property
    def deaths(self) -> dict[int, int]:
        """The exit codes of those that have ended: with another one torchrun ends them all."""
        return {rank: 0 for rank, worker in list(self.workers.items()) if worker.is_gone()}

    def busy_ranks(self) -> list[int]:
        """List those that may still do something."""
        gone = self.deaths
        return [rank for rank in range(self.size) if rank not in gone]

    def post(self, rank: int, question: Question[Any]) -> Posted[Any] | None:
        """Ask a worker, if it is there."""
        worker = self.workers.get(rank)
        future = None if worker is None else worker.post(question)
        return None if future is None else Posted(rank, question, future)


class _Watcher(Watcher):
    """Follow workers instead of the ranks of a lab."""

    def __init__(self, ranks: _Ranks) -> None:
        super().__init__(cast(RankCluster, ranks), range(ranks.size))
        self.ranks = ranks

    def post(self, rank: int, question: Question[Any]) -> Posted[Any] | None:
        return self.ranks.post(rank, question)

    def sample(self, ranks: Sequence[int]) -> dict[int, Sample]:
        posted = [self.post(rank, AskSample()) for rank in ranks]
        asked = [p for p in posted if p is not None]
        self.clock.wait([p.future for p in asked], times.ANSWER.seconds())
        return renumber({p.rank: p.answer() for p in asked if p.future.done()})

    def outside(self) -> tuple[str, ...]:
        return ()  # nobody sends work to a worker


class Watch:
    """Listens for the workers of one run of torchrun, and watches those of the last attempt."""

    def __init__(self, folder: Path) -> None:
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(folder / SOCKET))
        self._server.listen()
        self._lines: list[socket.socket] = []
        self._attempts: dict[int, _Ranks] = {}
        self._watcher: _Watcher | None = None
        # Something to wait for, which never comes.
        self._never = concurrent.futures.Future[Any]()
        threading.Thread(target=self._accept, name="labkit torchrun", daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                line, _ = self._server.accept()
                self._lines.append(line)
                name = "labkit torchrun worker"
                threading.Thread(target=self._read, args=(line,), name=name, daemon=True).start()

    def _read(self, line: socket.socket) -> None:
        with line, line.makefile("rb") as lines, contextlib.suppress(OSError):
            first = lines.readline()
            if not first:
                return
            worker = _Worker(line, hello := decode(Hello, json.loads(first)))
            ranks = self._attempts.setdefault(hello.attempt, _Ranks(hello.size))
            ranks.workers[hello.rank] = worker
            for answer in lines:
                worker.take(json.loads(answer))
            worker.close()

    def poll(self, seconds: float) -> Case | None:
        """Wait up to ``seconds`` for news; return a deadlock if there is one for certain."""
        attempts = dict(self._attempts)
        if not attempts:
            SYSTEM.sleep(seconds)
            return None
        last = attempts[max(attempts)]
        if self._watcher is None or last is not self._watcher.ranks:
            self._watcher = _Watcher(last)
        return self._watcher.poll([self._never], {}, seconds)

    def outlasts(self, seconds: float | None) -> bool:
        """Return whether what is suspected has lasted so long, and was judged once more since."""
        return self._watcher is not None and self._watcher.outlasts(seconds)

    def suspicion(self) -> Suspicion | None:
        """Return what is suspected of the workers."""
        return None if self._watcher is None else self._watcher.suspicion

    def waits(self) -> dict[int, Sample]:
        """Return the workers that are known to wait, with what they wait for."""
        return {} if self._watcher is None else self._watcher.waits()

    def states(self) -> list[RankState]:
        """Return what each worker does, as far as it can be asked."""
        if self._watcher is None:
            return []
        waits, host = self.waits(), socket.gethostname()
        return [
            _state(worker.hello, host, waits.get(rank))
            for rank, worker in sorted(self._watcher.ranks.workers.items())
            if not worker.is_gone()
        ]

    def pid(self, rank: int) -> int | None:
        """Return the process id of a worker of the last attempt, None before it is known."""
        attempts = dict(self._attempts)
        worker = attempts[max(attempts)].workers.get(rank) if attempts else None
        return None if worker is None else worker.hello.pid

    def close(self) -> None:
        """Listen no more, neither for workers nor to them."""
        for end in (self._server, *self._lines):
            with contextlib.suppress(OSError):  # closed already
                end.shutdown(socket.SHUT_RDWR)
        self._server.close()


def _state(hello: Hello, host: str, sample: Sample | None) -> RankState:
    about: dict[str, Any] = {"state": "running"}
    if sample is not None and sample.wait is not None:
        about = waiting(sample, sample.wait)
    return RankState(hello.rank, host, hello.pid, "", "", **about)


#: What is done about workers that block forever.
ENDED = "labkit ended torchrun with all its workers."


def deadlock(case: Case) -> Deadlock:
    """Return the error to raise for workers that block forever, or seem to."""
    waits = [*message.who_waits(case), *message.who_is_absent(case)]
    if case.doubts:
        waits += message.what_may_come(case)
        return SuspectedDeadlock(message.headline(case), waits, likely_cause(case), [ENDED])
    return Deadlock(message.headline(case), waits, likely_cause(case), [ENDED])


def stopped(suspicion: Suspicion | None) -> Interrupted:
    """Return the error to raise when somebody has pressed stop."""
    text = "torchrun was stopped, and all its workers with it."
    more = [] if suspicion is None else message.suspicion(suspicion.case)
    return Interrupted("\n".join([text, *more]), [f"{red('Interrupted')}: {text}", *more])
