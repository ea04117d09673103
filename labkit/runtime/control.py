"""Ask ranks on their control channel, which answers while a cell runs there."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..launch import ipyparallel_internals
from .cluster import RankCluster

#: Seconds for the answer to a question.
ANSWER_SECONDS = 1.0


def post(
    cluster: RankCluster, rank: int, message: str, content: Mapping[str, Any] | None = None
) -> Any:
    """Send a question to one rank; return the future of its answer.

    None if the rank is gone, or if ipyparallel has no way to it any more.
    """
    engines = _engines(cluster, [rank])
    if not engines:
        return None
    return ipyparallel_internals.send_control(cluster.client, engines[0], message, content or {})


def send_signal(
    cluster: RankCluster, ranks: Sequence[int], signum: str | int, seconds: float
) -> None:
    """Send a signal to some ranks; return when they have it, after ``seconds`` at the latest."""
    if engines := _engines(cluster, ranks):
        received = cluster.client.send_signal(signum, targets=engines, block=False)
        concurrent.futures.wait([received], seconds)


def _engines(cluster: RankCluster, ranks: Sequence[int]) -> list[int]:
    """List the engines of those of some ranks that are there."""
    ids, alive = cluster.client.ids, [r for r in ranks if r not in cluster.deaths]
    return [e for e in (cluster.places[r].engine for r in alive) if e in ids]


def ask(
    cluster: RankCluster,
    ranks: Sequence[int],
    message: str,
    contents: Mapping[int, Mapping[str, Any]] | None = None,
    seconds: float = ANSWER_SECONDS,
) -> dict[int, dict[str, Any]]:
    """Ask some ranks, each its own ``contents``; return the answers by rank.

    A rank that gives none within ``seconds`` is left out.
    """
    own = contents or {}
    futures = {r: post(cluster, r, message, own.get(r)) for r in ranks}
    deadline = time.monotonic() + seconds
    answers = {}
    for rank, future in futures.items():
        if future is not None and future.wait(max(0.0, deadline - time.monotonic())):
            answers[rank] = future.result()["content"]
    return answers
