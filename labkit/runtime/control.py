"""Ask ranks on their control channel, which answers while a cell runs there."""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..base import times
from ..base.errors import LabError
from ..deadlock import message
from ..deadlock.samples import renumber
from ..launch import ipyparallel_internals
from ..wire.encoding import ProtocolError, decode, encode
from ..wire.requests import REFUSED, Activity, AskActivity, AskBusy, AskSample, Question
from ..wire.samples import Sample, Wait
from ..wire.state import RankState, describe_exit
from .cluster import RankCluster

_log = logging.getLogger(__name__)

A = TypeVar("A")


@dataclass(frozen=True)
class Posted(Generic[A]):
    """A question that is on its way to a rank."""

    rank: int
    question: Question[A]
    future: Any  #: ipyparallel's, of the reply

    def answer(self) -> A:
        """Return the answer, which must be there.

        LabError: if rank and notebook do not understand each other.
        """
        content = self.future.result()["content"]
        try:
            if REFUSED in content:
                raise ProtocolError(content[REFUSED])
            answer: A = decode(self.question.answer, content)
        except ProtocolError as error:
            raise LabError(
                f"rank {self.rank} and the notebook do not understand each other in "
                f"{self.question.request}: {error}. Both need the same version of labkit."
            ) from None
        return answer


def post(cluster: RankCluster, rank: int, question: Question[A]) -> Posted[A] | None:
    """Send a question to one rank.

    None if the rank is gone, or if ipyparallel has no way to it any more.
    """
    future = None
    if engines := _engines(cluster, [rank]):
        future = ipyparallel_internals.send_control(
            cluster.client, engines[0], question.request, encode(question)
        )
    return None if future is None else Posted(rank, question, future)


def ask(
    cluster: RankCluster,
    questions: Mapping[int, Question[A]],
    within: times.Bound = times.ANSWER,
) -> dict[int, A]:
    """Ask ranks, each its own question; return the answers by rank.

    A rank that gives none ``within`` is left out.
    """
    posted = [post(cluster, rank, question) for rank, question in questions.items()]
    deadline = cluster.clock.now() + within.seconds()
    return {
        p.rank: p.answer()
        for p in posted
        if p is not None and cluster.clock.wait_by(p.future.wait, deadline - cluster.clock.now())
    }


def sample(
    cluster: RankCluster, ranks: Iterable[int], within: times.Bound = times.ANSWER
) -> dict[int, Sample]:
    """Ask some ranks what they wait for and what they have provided."""
    return renumber(ask(cluster, dict.fromkeys(ranks, AskSample()), within))


def sample_idle(cluster: RankCluster) -> dict[int, Sample]:
    """Ask all ranks, of which none is busy, the same; not those whose process is stopped."""
    ranks = [rank for rank in range(cluster.size) if not cluster.is_stopped(rank)]
    return sample(cluster, ranks, times.IDLE_ANSWER)


def send_signal(
    cluster: RankCluster,
    ranks: Sequence[int],
    signum: str | int,
    within: times.Bound = times.QUICK_ANSWER,
) -> None:
    """Send a signal to some ranks; return when they have it, or once it is not there ``within``:
    one that came later would hit what is sent to them next.

    Those that the launcher reaches get it from the system, also while C code in them holds the
    interpreter; the others on their control channel.
    """
    _log.debug("sends %s to ranks %s", signum, ranks)
    number = getattr(signal, signum) if isinstance(signum, str) else signum
    far = [r for r in ranks if not cluster.signal(r, number)]
    if engines := _engines(cluster, far):
        received = cluster.client.send_signal(signum, targets=engines, block=False)
        cluster.clock.wait([received], within.seconds())


def _engines(cluster: RankCluster, ranks: Sequence[int]) -> list[int]:
    """List the engines of those of some ranks that are there."""
    ids, alive = cluster.client.ids, [r for r in ranks if r not in cluster.deaths]
    return [e for e in (cluster.places[r].engine for r in alive) if e in ids]


# -- what each rank does ------------------------------------------------------------------------


def list_states(cluster: RankCluster, waits: Mapping[int, Sample] | None = None) -> list[RankState]:
    """Ask every rank what it does; ``waits`` has what ranks are known to wait for already."""
    everyone = range(len(cluster.places))
    answers = ask(cluster, dict.fromkeys(everyone, AskActivity()))
    known = waits or {}
    return [_state(cluster, r, answers.get(r), known.get(r)) for r in everyone]


def survey(cluster: RankCluster) -> list[RankState]:
    """Ask every rank what it does and, if it may be waiting, for what."""
    states = list_states(cluster)
    running = [s.rank for s in states if s.state == "running"]
    if not running:
        return states
    sample(cluster, running)
    cluster.clock.sleep(times.STOOD_STILL.seconds())
    samples = sample(cluster, running)
    waits = {r: s for r, s in samples.items() if s.wait is not None}
    return [_state(cluster, s.rank, None, waits[s.rank]) if s.rank in waits else s for s in states]


def _state(
    cluster: RankCluster, rank: int, answer: Activity | None, sample: Sample | None
) -> RankState:
    place = cluster.places[rank]
    about: dict[str, Any] = {}
    if rank in cluster.deaths:
        about = {"state": "dead", "detail": describe_exit(cluster.deaths[rank])}
    elif sample is not None and sample.wait is not None:
        about = waiting(sample, sample.wait)
    elif answer is None:
        stopped = cluster.is_stopped(rank)
        why = "its process is stopped: SIGSTOP or a debugger" if stopped else ""
        about = {"state": "no answer", "detail": why}
    else:
        state = "asking" if answer.asks else "running" if answer.busy else "idle"
        about = {"state": state, "where": answer.where, "line": answer.line, "detail": answer.asks}
    if answer is not None:
        about |= {"memory": answer.memory, "gpu": answer.gpu, "left": answer.left}
    return RankState(place.rank, place.host, place.pid, place.device, place.backend, **about)


def waiting(sample: Sample, wait: Wait) -> dict[str, Any]:
    """Return what a RankState says of a rank that waits."""
    return {
        "state": "waiting",
        "detail": message.describe(wait, sample.entry),
        "where": wait.where,
        "line": wait.line,
        "seconds": wait.seconds,
    }


# -- how busy this machine is -------------------------------------------------------------------


def measure_pace(cluster: RankCluster, ranks: Iterable[int]) -> None:
    """Ask one of some ranks whether it is busy, and record how long the answer takes if it is not.

    Nobody waits for the answer. What this process has computed meanwhile is subtracted: a figure
    that is being drawn here delays the answer, too, and says nothing of the machine.
    """
    now = cluster.clock.now()
    if now < cluster.measure_after:
        return
    cluster.measure_after = now + times.PACE_MEASURED
    rank = next((r for r in ranks if r not in cluster.deaths), None)
    if rank is None:
        return
    own = time.process_time()
    with contextlib.suppress(LabError):  # the controller has ended
        posted = post(cluster, rank, AskBusy())
        if posted is None:
            return

        def take(_: object) -> None:
            seconds = cluster.clock.now() - now - (time.process_time() - own)
            with contextlib.suppress(Exception):  # it has died, or is of another version
                if not posted.answer().busy:
                    times.pace.note(seconds)
                    _log.debug("rank %d answers in %.4f s: %s", rank, seconds, times.pace)

        posted.future.add_done_callback(take)
