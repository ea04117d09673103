"""Form the process group of a lab, and form it again."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..base import interrupts, times
from ..base.errors import LabError
from ..base.rank_names import how_to_replace, label
from ..wire import remote_calls
from . import recovery
from .cluster import RankCluster
from .messages import Message

_log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
#: An address that nobody has (RFC 5737): the way to it is the way to everywhere else.
ANYWHERE = "192.0.2.1"


class GroupManager:
    """The lab's process group: formed, in need of repair, or left to the learner.

    ``join``: False leaves ``init_process_group`` to the learner. ``timeout``: Seconds, for joining
    and for every later collective.
    """

    def __init__(self, cluster: RankCluster, *, join: bool, timeout: float) -> None:
        self.cluster = cluster
        self.join = join
        self.timeout = timeout
        self.in_c: Mapping[int, str] = {}  #: ranks in C code, or an import, after a stop; where
        self.broken = False  #: its connections were shut, or a rank of it is gone
        self.cause = ""  #: what has broken it: "the deadlock"
        #: lists what was sent in the last cell that has ended
        self.messages: Callable[[], list[Message]] = list

    def settle(self, ranks: Sequence[int] | None = None) -> None:
        """Tell fresh ranks (all if None) which rank each is, and form the group.

        If it is interrupted or fails, another call does it all again.
        """
        everyone = list(range(self.cluster.size))
        fresh = everyone if ranks is None else ranks
        joined = everyone if self.broken else [r for r in everyone if r not in fresh]
        with self._changing():
            assign_ranks(self.cluster, fresh)
            if joined:
                self._leave(joined, "lab.restart()")
            self._form()
            if not self.join:
                export(self.cluster)

    def rebuild(self, by: str = "lab.reset()") -> None:
        """Leave the group on every rank and form a new one; variables stay.

        ``by`` says through what the old one ends, to who uses it again.
        """
        with self._changing():
            self._leave(range(self.cluster.size), by)
            self._form()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the group: it is broken until it is formed.

        An interrupt has to wait a moment, which is all that this takes as a rule. Otherwise the
        ranks that are on their way into a group are freed, and it is formed when it is needed.
        """
        with interrupts.shielded():
            self.broken = True
            try:
                with interrupts.cancellable(after=times.GROUP_FORMED.seconds()):
                    yield
            except (KeyboardInterrupt, LabError):
                with contextlib.suppress(LabError):
                    recovery.interrupt(self.cluster, self.cluster.busy_ranks, "SIGINT")
                raise
            self.broken = False

    def _leave(self, ranks: Sequence[int], by: str) -> None:
        """Leave the group on some ranks. What is still under way in it would hold them up."""
        _log.debug("%s leave the group", label(ranks))
        recovery.close_connections(self.cluster, ranks)
        self.cluster.remote_call(
            {self.cluster.places[r].engine: remote_calls.leave(by) for r in ranks}
        )

    def _form(self) -> None:
        if self.join:
            form(self.cluster, self.timeout)

    def repair(self) -> bool:
        """Rebuild a broken group if every rank is free for it; return whether all is well."""
        if not self.broken:
            return True
        cluster = self.cluster
        ranks = [r for r in range(cluster.size) if r not in cluster.deaths]
        free = [r for r in ranks if not cluster.is_busy(r)]
        _log.info("the group is broken; free for a new one: %s", label(free))
        if len(free) == cluster.size:
            self.rebuild(self.cause)
        else:
            with interrupts.shielded(), interrupts.cancellable(after=times.GROUP_FORMED.seconds()):
                self._leave(free, self.cause)
        return not self.broken

    def check(self) -> None:
        """Repair a broken group before something runs on it.

        LabError: if a rank is still busy with what broke it.
        """
        if self.cluster.deaths or self.repair():  # without the dead there is none to rebuild
            return
        with interrupts.shielded(), interrupts.cancellable():
            self.cluster.clock.wait_for(
                lambda: not self.cluster.busy_ranks(), times.GROUP_FREE.seconds()
            )
        if self.cluster.deaths or self.repair():
            return
        busy = self.cluster.busy_ranks()
        in_c = "".join(
            f" {label([r]).capitalize()} is still in C code, or in an import"
            f"{place and f' ({place})'}; if you "
            "wait until it returns, its variables are kept."
            for r, place in self.in_c.items()
            if r in busy
        )
        raise LabError(
            f"{label(busy).capitalize()} did not return from an earlier cell, so the process "
            f"group cannot be rebuilt; {how_to_replace(busy)}.{in_c}"
        )


def assign_ranks(cluster: RankCluster, ranks: Sequence[int]) -> None:
    """Tell some ranks which rank each is; no process group yet."""
    places = cluster.places
    chosen = [places[r] for r in ranks]
    addresses = dict.fromkeys(ranks, "") if is_local(cluster) else find_addresses(cluster, ranks)
    cluster.remote_call(
        {
            p.engine: remote_calls.assign(
                rank=p.rank,
                world_size=len(places),
                device=p.device,
                threads=p.threads,
                environment=dict(p.environment),
                address=addresses[p.rank],
                autoreload=cluster.autoreload,
            )
            for p in chosen
        }
    )


def find_addresses(cluster: RankCluster, ranks: Sequence[int]) -> dict[int, str]:
    """Find out by which address of its host each of some ranks is reached from other hosts.

    LabError: if a host has none.
    """
    chosen = [cluster.places[r] for r in ranks]
    found = cluster.remote_call({p.engine: remote_calls.find_address() for p in chosen})
    known = {p.host: address for p, address in zip(chosen, found, strict=True) if address}
    if lacking := [p for p in chosen if p.host not in known]:
        call = remote_calls.address_towards(next(iter(known.values()), ANYWHERE))
        found = cluster.remote_call({p.engine: call for p in lacking})
        known |= {p.host: address for p, address in zip(lacking, found, strict=True)}
    for host, address in known.items():
        if not address:
            raise LabError(f"The host {host} has no address by which other hosts reach it.")
    return {p.rank: known[p.host] for p in chosen}


def form(cluster: RankCluster, timeout: float) -> None:
    """Open a store on rank 0 and let every rank join the default process group.

    The ranks learn on the way what ``export`` would tell them.
    """
    began = time.monotonic()
    places = cluster.places
    host = _host_of_rank_0(cluster)
    ((port, own_port),) = cluster.remote_call(
        {places[0].engine: remote_calls.open_store(host, timeout)}
    )
    cluster.remote_call(
        {
            p.engine: remote_calls.join(
                rank=p.rank,
                world_size=len(places),
                backend=p.backend,
                device=p.device,
                host=host,
                port=port,
                own_port=own_port,
                timeout=timeout,
            )
            for p in places
        }
    )
    _log.info(
        "%s formed a group in %.3f s, with %s and a store at %s, port %d",
        label(range(len(places))),
        time.monotonic() - began,
        places[0].backend,
        host,
        port,
    )


def export(cluster: RankCluster) -> None:
    """Set on every rank what torchrun would: a group of the learner's can be formed by ``env://``.

    The port is not that of the lab's own store, which is taken: rank 0 keeps a free one.
    """
    places = cluster.places
    host = _host_of_rank_0(cluster)
    (port,) = cluster.remote_call({places[0].engine: remote_calls.reserve_port(host)})
    cluster.remote_call(
        {p.engine: remote_calls.export(p.rank, len(places), host, port) for p in places}
    )


def _host_of_rank_0(cluster: RankCluster) -> str:
    if is_local(cluster):
        return LOOPBACK
    return cluster.remote_call({cluster.places[0].engine: remote_calls.address()})[0]


def is_local(cluster: RankCluster) -> bool:
    """Return whether every rank is on one host, so that loopback is enough."""
    return len({p.host for p in cluster.places}) == 1
