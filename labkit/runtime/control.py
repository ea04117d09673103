"""Ask ranks on their control channel, which answers while a cell runs there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from .cluster import RankCluster

#: Seconds for the answer to a question.
ANSWER_SECONDS = 1.0


def post(
    cluster: RankCluster, rank: int, message: str, content: Mapping[str, Any] | None = None
) -> Any:
    """Send a question to one rank; return the future of its answer, None if the rank is gone."""
    client = cluster.client
    engine = cluster.places[rank].engine
    if rank in cluster.deaths or engine not in client.ids:
        return None
    (identity,) = client._build_targets(engine)[0]
    return client._send(client._control_stream, message, dict(content or {}), ident=identity)


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
