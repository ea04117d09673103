"""Form the process group of a lab, and form it again."""

from __future__ import annotations

from .cluster import RankCluster

LOOPBACK = "127.0.0.1"


def hand_out(cluster: RankCluster) -> None:
    """Tell every rank who it is; no process group yet."""
    places = cluster.places
    cluster.errand(
        [p.engine for p in places],
        "identity.assign",
        [p.rank for p in places],
        [len(places)] * len(places),
        [p.device for p in places],
        [p.threads for p in places],
        [dict(p.environment) for p in places],
        [is_local(cluster)] * len(places),
    )


def form(cluster: RankCluster, timeout: float) -> None:
    """Open a store on rank 0 and let every rank join the default process group."""
    places = cluster.places
    first = [places[0].engine]
    host = LOOPBACK if is_local(cluster) else cluster.errand(first, "group.address")[0]
    port = cluster.errand(first, "group.open_store", [host], [timeout])[0]
    size = len(places)
    cluster.errand(
        [p.engine for p in places],
        "group.join",
        [p.rank for p in places],
        [size] * size,
        [p.backend for p in places],
        [p.device for p in places],
        [host] * size,
        [port] * size,
        [timeout] * size,
    )


def rebuild(cluster: RankCluster, timeout: float) -> None:
    """Leave the process group on every rank and form a new one; variables stay."""
    cluster.errand([p.engine for p in cluster.places], "group.leave")
    form(cluster, timeout)


def is_local(cluster: RankCluster) -> bool:
    """Tell whether every rank is on one host, so that loopback is enough."""
    return len({p.host for p in cluster.places}) == 1
