"""What a lab is made of: its ranks and their process group, until it is stopped."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import interrupts, times
from ..base.errors import LabError, LabStopped, UsageError
from ..base.rank_names import fold, how_to_replace, label
from . import control
from .cluster import RankCluster
from .process_group import GroupManager


class Session:
    """The ranks of a lab and their process group: what everything that runs on them needs.

    ``labkit.Lab`` is its face. It is made by :meth:`form`.
    """

    def __init__(self, cluster: RankCluster, group: GroupManager) -> None:
        self._cluster = cluster
        self._group = group
        self.stopped = False
        self._fresh: list[int] | None = []  # ranks that are being replaced; None: all

    @classmethod
    def form(cls, cluster: RankCluster, *, join: bool, timeout: float) -> Session:
        """Form the process group of ranks that have started.

        ``join``: False leaves ``init_process_group`` to the learner. ``timeout``: Seconds, for
        joining and for every later collective.
        """
        group = GroupManager(cluster, join=join, timeout=timeout)
        group.settle()
        control.measure_pace(cluster, range(cluster.size))
        return cls(cluster, group)

    # A restart that was interrupted comes to its end before either is given away.

    @property
    def cluster(self) -> RankCluster:
        """The processes; LabStopped if the lab was stopped."""
        self._settle()
        return self._cluster

    @property
    def group(self) -> GroupManager:
        """The process group; LabStopped if the lab was stopped."""
        self._settle()
        return self._group

    def _check(self) -> None:
        if self.stopped:
            raise LabStopped("This lab was stopped; labkit.start() gives you a new one.")

    def summary(self) -> str:
        """Return what is known of the ranks without asking them: ``4 ranks, gloo, cpu``."""
        if self.stopped:
            return "stopped"
        places, dead = list(self._cluster.places), list(self._cluster.deaths)
        count = self._cluster.size
        hosts = len({place.host for place in places})
        facts = [
            f"{count} rank{'s' if count != 1 else ''}"
            + (f" on {hosts} hosts" if hosts > 1 else ""),
            *dict.fromkeys(place.backend for place in places),
            *dict.fromkeys(place.device.partition(":")[0] for place in places),
        ]
        return ", ".join(facts) + (f"; {label(dead)} ended" if dead else "")

    def check_ranks(self, ranks: Sequence[int] | None) -> list[int]:
        """Return ``ranks`` as a sorted list, all ranks if None.

        UsageError: if one is not a rank of this lab.
        """
        self._check()
        size = self._cluster.size
        if ranks is None:
            return list(range(size))
        chosen = [ranks] if isinstance(ranks, int) else list(ranks)
        wrong = [r for r in chosen if not isinstance(r, int) or not 0 <= r < size]
        if wrong:
            raise UsageError(f"There is no rank {wrong[0]!r} here: ranks go from 0 to {size - 1}.")
        if not chosen:
            raise UsageError("ranks must name at least one rank, got [].")
        return sorted(set(chosen))

    def check_idle(self, ranks: Sequence[int] | None = None) -> None:
        """See that some ranks (all if None) have nothing to do; ask nothing of those that have.

        LabError: if one is busy: with what, and what to do about it.
        """
        cluster = self.cluster
        places: dict[int, str] = {}
        for pause in times.LINE_LOOKS:
            cluster.clock.sleep(pause.seconds())
            busy = [r for r in self.check_ranks(ranks) if cluster.is_busy(r)]
            if not busy:
                return
            states = {s.rank: s for s in control.list_states(cluster) if s.rank in busy}
            places = {r: ": ".join(filter(None, (s.where, s.line))) for r, s in states.items()}
            if all(places.values()):
                break
        what = " and ".join(
            f"{label(some)} {'is' if len(some) == 1 else 'are'} busy{place and f' at {place}'}"
            for some, place in fold(places)
        )
        raise LabError(
            f"{what[0].upper()}{what[1:]}; nothing was changed. Wait until that has ended "
            f"(%pxresult does), or {how_to_replace(busy)}."
        )

    def reset(self) -> None:
        """Form the process group anew; LabError if a rank has ended."""
        if dead := sorted(self.cluster.deaths):
            raise LabError(f"{label(dead).capitalize()} ended; lab.restart(ranks={dead}) first.")
        self.group.join = True
        self.group.rebuild()

    def restart(self, ranks: Sequence[int] | None = None) -> None:
        """Replace ranks (all if None) by fresh processes, and form the process group again.

        LabError: if ``ranks`` leaves out one that has ended.
        """
        chosen = self.check_ranks(ranks)
        if missing := sorted(set(self._cluster.deaths) - set(chosen)):
            everyone = sorted({*chosen, *missing})
            raise LabError(
                f"{label(missing).capitalize()} ended too; restart all of them at once: "
                f"lab.restart(ranks={everyone})."
            )
        ranks = None if ranks is None else chosen
        before = self._fresh
        if ranks is None or before is None:
            self._fresh = None
        else:
            self._fresh = sorted({*before, *ranks})
        places = list(self._cluster.places)
        with interrupts.shielded(), interrupts.cancellable():
            try:
                self._cluster.restart(ranks)
            except LabError:
                if self._cluster.places == places:  # it was refused: nothing has changed
                    self._fresh = before
                raise
            self._group.settle(self._fresh)
            self._fresh = []

    def _settle(self) -> None:
        """Bring a restart to its end that was interrupted; LabStopped if the lab was stopped."""
        self._check()
        if self._fresh is None or self._fresh:
            with interrupts.shielded(), interrupts.cancellable():
                self._cluster.arrive()
                self._group.settle(self._fresh)
                self._fresh = []

    def stop(self) -> None:
        """End every process. Safe to call twice."""
        with interrupts.shielded():
            if not self.stopped:
                self.stopped = True
                self._cluster.close()
