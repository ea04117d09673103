"""Ask ranks on their control channel, which answers while a cell runs there."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .. import times
from ..errors import LabError
from ..launch import ipyparallel_internals
from ..wire.encoding import ProtocolError, decode, encode
from ..wire.requests import REFUSED, Question
from .cluster import RankCluster

A = TypeVar("A")


@dataclass(frozen=True)
class Posted(Generic[A]):
    """A question that is on its way to a rank."""

    rank: int
    question: Question[A]
    future: Any  #: ipyparallel's, of the reply

    def answer(self) -> A:
        """Return the answer, which must be there.

        Raises
        ------
        LabError
            If rank and notebook do not understand each other.
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

    Raises
    ------
    LabError
        If a rank and the notebook do not understand each other.
    """
    posted = [post(cluster, rank, question) for rank, question in questions.items()]
    deadline = cluster.clock.now() + within.seconds()
    return {
        p.rank: p.answer()
        for p in posted
        if p is not None and cluster.clock.wait_by(p.future.wait, deadline - cluster.clock.now())
    }


def send_signal(
    cluster: RankCluster, ranks: Sequence[int], signum: str | int, within: times.Bound
) -> None:
    """Send a signal to some ranks; return when they have it, or once it is not there ``within``.

    Those that the launcher reaches get it from the system, also while C code in them holds the
    interpreter; the others on their control channel.
    """
    number = getattr(signal, signum) if isinstance(signum, str) else signum
    far = [r for r in ranks if not cluster.signal(r, number)]
    if engines := _engines(cluster, far):
        received = cluster.client.send_signal(signum, targets=engines, block=False)
        cluster.clock.wait([received], within.seconds())


def _engines(cluster: RankCluster, ranks: Sequence[int]) -> list[int]:
    """List the engines of those of some ranks that are there."""
    ids, alive = cluster.client.ids, [r for r in ranks if r not in cluster.deaths]
    return [e for e in (cluster.places[r].engine for r in alive) if e in ids]
