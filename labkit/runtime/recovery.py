"""Free ranks that are blocked, and end what runs on the others.

Gloo has no working abort, and an interrupt does not reach a rank inside a collective. What does
is the end of its connections: everything that waits on them fails at once. Only connections
between two ranks of the lab are shut; what a rank has with the rest of the world stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from .. import times
from ..deadlock.in_step import in_step
from ..wire.connections import Pair, list_connections_of
from ..wire.requests import AskConnections, AskWait, Connections, Shut, Wake
from ..wire.samples import Sample, Wait
from . import control
from .cluster import RankCluster
from .watchdog import sample

_log = logging.getLogger(__name__)


def send_signal(cluster: RankCluster, ranks: Sequence[int], signum: str | int) -> None:
    """Send a signal to some ranks; return when they have it, those that answer at all.

    One that came later would hit what is sent to them next.
    """
    _log.debug("sends %s to ranks %s", signum, ranks)
    control.send_signal(cluster, ranks, signum, times.QUICK_ANSWER)


def free(cluster: RankCluster, ranks: Sequence[int]) -> list[int]:
    """End what blocks some ranks: what they are in raises an error. Return those that answer."""
    answers = control.ask(cluster, dict.fromkeys(ranks, AskWait()), times.QUICK_ANSWER)
    waits = {r: a.wait for r, a in answers.items() if a.wait is not None}
    _wake(cluster, waits)
    # One that waits for a thread of its own is interrupted before that thread is freed: it would
    # go on with what the thread leaves, and call what others still wait for.
    if joining := sorted(r for r, wait in waits.items() if wait.kind == "thread"):
        send_signal(cluster, joining, "SIGINT")
    shut(cluster, sorted(answers))
    return sorted(answers)


def shut(cluster: RankCluster, ranks: Sequence[int]) -> None:
    """Shut down the connections of some ranks with every rank of the lab."""
    everyone = _connections(cluster)
    ends = {pair for pairs in everyone.values() for pair in pairs}
    own = {r: Shut(tuple((a, b) for a, b in everyone[r] if (b, a) in ends)) for r in ranks}
    if _log.isEnabledFor(logging.DEBUG):
        counts = {r: len(shared.pairs) for r, shared in own.items()}
        _log.debug("shuts connections between ranks, per rank: %s", counts)
    control.ask(cluster, own, times.QUICK_ANSWER)


def _wake(cluster: RankCluster, waits: Mapping[int, Wait]) -> None:
    """Let ranks return that receive from any rank, into an interrupt.

    Such a receive is tied to no connection, but one byte ends it.
    """
    receivers = {r: wait for r, wait in waits.items() if wait.kind == "recv_any" and wait.options}
    if not receivers:
        return
    send_signal(cluster, sorted(receivers), "SIGINT")
    for rank, wait in receivers.items():
        others = [r for r in range(cluster.size) if r != rank and r not in cluster.deaths]
        (group, _), _ = wait.options[0]
        wake = Wake(group, wait.me, wait.tag)
        for other in others:  # the first that is in the group
            answer = control.ask(cluster, {other: wake}, times.QUICK_ANSWER).get(other)
            _log.debug("rank %d was to wake rank %d: %s", other, rank, answer)
            if answer is not None and answer.count:
                break


def _connections(cluster: RankCluster) -> dict[int, list[Pair]]:
    """List the connections of every rank; of those on this host also if they do not answer."""
    here = {r: p.pid for r in range(cluster.size) if (p := cluster.local_process(r)) is not None}
    elsewhere = [r for r in range(cluster.size) if r not in here]
    answers = control.ask(cluster, dict.fromkeys(elsewhere, AskConnections()))
    found = list_connections_of(here.values())
    pairs = {r: [(c.own, c.other) for c in found.get(pid, ())] for r, pid in here.items()}
    return pairs | {r: list(answers.get(r, Connections(())).pairs) for r in elsewhere}


def end(
    cluster: RankCluster,
    busy: Callable[[], list[int]],
    stuck: Sequence[int],
    signum: str | int = "SIGINT",
    *,
    seen: bool = True,
) -> list[int]:
    """Free ``stuck`` ranks, interrupt those that run; return those that are busy all the same.

    ``seen``: the stuck ones were seen to wait for one another, so that all have to come back. One
    of them may answer late, where many share the processors or while it imports a library; else
    one on this host that does not answer is not waited for.
    """
    seconds = times.STUCK.seconds() if seen else times.STOPPED.seconds()
    send_signal(cluster, [r for r in busy() if r not in stuck], signum)
    silent = set(stuck) - set(free(cluster, stuck))
    # On another host a rank may be out of reach for a moment.
    is_lost = cluster.is_stopped if seen else cluster.local_process
    lost = set(filter(is_lost, silent))

    def still() -> list[int]:
        return sorted(set(busy()) - lost)

    cluster.clock.wait_for(lambda: not still(), times.FREED.seconds())
    deadline = cluster.clock.now() + seconds
    if waiting := still():  # freed, and waiting again: it caught the error
        send_signal(cluster, waiting, signum)
    while waiting := still():
        free(cluster, waiting)
        again = min(seconds, times.FREED_AGAIN.seconds())
        cluster.clock.wait_for(lambda: not still(), again)
        if cluster.clock.now() > deadline:
            break
    left = busy()
    _log.info("freed ranks %s; no answer from %s; still busy: %s", stuck, sorted(silent), left)
    return left


def interrupt(
    cluster: RankCluster, busy: Callable[[], list[int]], signum: str | int
) -> tuple[list[int], list[int]]:
    """Interrupt busy ranks; return those that had to be freed and those that did not end."""
    running = busy()
    _log.info("interrupts ranks %s", running)
    send_signal(cluster, running, signum)
    cluster.clock.wait_for(lambda: not busy(), times.INTERRUPTED.seconds())
    blocked = busy()
    if not blocked:
        return [], []
    return blocked, end(cluster, busy, blocked, signum, seen=False)


def wait_for(
    cluster: RankCluster, busy: Callable[[], list[int]], coming: Sequence[int]
) -> list[int]:
    """Wait for interrupted ranks that are on their way back; return all that are busy then."""
    cluster.clock.wait_for(lambda: not set(coming) & set(busy()), times.COMING.seconds())
    return busy()


def out_of_step(cluster: RankCluster, samples: Mapping[int, Sample] | None = None) -> bool:
    """Tell whether ranks may have made different calls in a group: their next ones would be
    mistaken for one another. ``samples`` are what they say of themselves; None: they are asked."""
    if cluster.deaths or cluster.busy_ranks():
        return True
    if samples is None:
        samples = sample(cluster, range(cluster.size))
    apart = len(samples) < cluster.size or not in_step(samples)
    _log.debug("the ranks are %s", "out of step" if apart else "in step")
    return apart
