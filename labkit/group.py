"""Form the process group of a lab, and form it again."""

from __future__ import annotations

from .cluster import RankCluster

LOOPBACK = "127.0.0.1"


def hand_out(cluster: RankCluster) -> None:
    """Tell every rank who it is; no process group yet."""
    places, one_host = cluster.places, is_local(cluster)
    own = [
        (p.rank, len(places), p.device, p.threads, dict(p.environment), one_host) for p in places
    ]
    cluster.errand([p.engine for p in places], "identity.assign", own)


def form(cluster: RankCluster, timeout: float) -> None:
    """Open a store on rank 0 and let every rank join the default process group."""
    places = cluster.places
    first = [places[0].engine]
    host = LOOPBACK if is_local(cluster) else cluster.errand(first, "group.address")[0]
    port = cluster.errand(first, "group.open_store", [(host, timeout)])[0]
    own = [(p.rank, len(places), p.backend, p.device, host, port, timeout) for p in places]
    cluster.errand([p.engine for p in places], "group.join", own)


def rebuild(cluster: RankCluster, timeout: float) -> None:
    """Leave the process group on every rank and form a new one; variables stay."""
    cluster.errand([p.engine for p in cluster.places], "group.leave")
    form(cluster, timeout)


def is_local(cluster: RankCluster) -> bool:
    """Tell whether every rank is on one host, so that loopback is enough."""
    return len({p.host for p in cluster.places}) == 1
