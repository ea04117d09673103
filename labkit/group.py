"""Form the process group of a lab, and form it again."""

from __future__ import annotations

from collections.abc import Sequence

from .cluster import RankCluster
from .display import label
from .errors import LabError

LOOPBACK = "127.0.0.1"


class GroupKeeper:
    """The lab's process group: formed, in need of repair, or left to the learner.

    Parameters
    ----------
    join
        False leaves ``init_process_group`` to the learner.
    timeout
        Seconds, for joining and for every later collective.
    """

    def __init__(self, cluster: RankCluster, *, join: bool, timeout: float) -> None:
        self.cluster = cluster
        self.join = join
        self.timeout = timeout
        self.broken = False  #: its connections were shut, or a rank of it is gone

    def settle(self, ranks: Sequence[int] | None = None) -> None:
        """Tell fresh ranks (all if None) who they are, and form the group."""
        places = self.cluster.places
        chosen = places if ranks is None else [places[r] for r in ranks]
        hand_out(self.cluster, [p.rank for p in chosen])
        if ranks is not None:
            others = [p.engine for p in places if p.rank not in ranks]
            self.cluster.errand(others, "group.leave")
        self._form()

    def rebuild(self) -> None:
        """Leave the group on every rank and form a new one; variables stay."""
        self.cluster.errand([p.engine for p in self.cluster.places], "group.leave")
        self._form()

    def _form(self) -> None:
        self.broken = True  # until it is formed
        if self.join:
            form(self.cluster, self.timeout)
        self.broken = False

    def repair(self) -> bool:
        """Rebuild a broken group if every rank is free for it; tell whether all is well."""
        if not self.broken:
            return True
        cluster = self.cluster
        alive = [p for p in cluster.places if p.rank not in cluster.deaths]
        free = [p.engine for p in alive if not cluster.is_busy(p.rank)]
        if len(free) == cluster.size:
            self.rebuild()
        else:
            cluster.errand(free, "group.leave")
        return not self.broken

    def check(self) -> None:
        """Repair a broken group before something runs on it.

        Raises
        ------
        LabError
            If a rank is still busy with what broke it.
        """
        if self.repair():
            return
        busy = [r for r in range(self.cluster.size) if self.cluster.is_busy(r)]
        if busy:
            raise LabError(
                f"{label(busy).capitalize()} did not return from an earlier cell, so the process "
                f"group cannot be rebuilt; lab.restart(ranks={busy}) replaces it."
            )


def hand_out(cluster: RankCluster, ranks: Sequence[int]) -> None:
    """Tell some ranks who they are; no process group yet."""
    places, one_host = cluster.places, is_local(cluster)
    chosen = [places[r] for r in ranks]
    own = [
        (p.rank, len(places), p.device, p.threads, dict(p.environment), one_host) for p in chosen
    ]
    cluster.errand([p.engine for p in chosen], "identity.assign", own)


def form(cluster: RankCluster, timeout: float) -> None:
    """Open a store on rank 0 and let every rank join the default process group."""
    places = cluster.places
    first = [places[0].engine]
    host = LOOPBACK if is_local(cluster) else cluster.errand(first, "group.address")[0]
    port = cluster.errand(first, "group.open_store", [(host, timeout)])[0]
    own = [(p.rank, len(places), p.backend, p.device, host, port, timeout) for p in places]
    cluster.errand([p.engine for p in places], "group.join", own)


def is_local(cluster: RankCluster) -> bool:
    """Tell whether every rank is on one host, so that loopback is enough."""
    return len({p.host for p in cluster.places}) == 1
