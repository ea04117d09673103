"""Free ranks that are blocked, and end what runs on the others.

Gloo has no working abort, and an interrupt does not reach a rank inside a collective. What does
is the end of its connections: everything that waits on them fails at once. Only connections
between two ranks of the lab are shut; what a rank has with the rest of the world stays.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath

from ..base import times
from ..base.rank_names import fold, label
from ..deadlock.in_step import in_step
from ..wire import protocol, python_threads
from ..wire.connections import Pair, list_connections_of
from ..wire.protocol import Frame
from ..wire.requests import AskConnections, AskWait, Connections, Shut, Wake
from ..wire.samples import Sample, Wait
from . import control
from .cluster import RankCluster

_log = logging.getLogger(__name__)

#: Begin the file names of the learner's code, beside ipykernel's.
OWN = ("In[", "<ipython-input")


def free(cluster: RankCluster, ranks: Sequence[int]) -> list[int]:
    """End what blocks some ranks: what they are in raises an error. Return those that answer."""
    answers = control.ask(cluster, dict.fromkeys(ranks, AskWait()), times.QUICK_ANSWER)
    waits = {r: a.wait for r, a in answers.items() if a.wait is not None}
    _wake(cluster, waits)
    # A rank that joins one of its own threads is interrupted before that thread is freed: it would
    # go on with what the thread leaves, and make the calls that other ranks still wait for.
    if joining := sorted(r for r, wait in waits.items() if wait.kind == "thread"):
        control.send_signal(cluster, joining, "SIGINT")
    close_connections(cluster, sorted(answers))
    return sorted(answers)


def close_connections(cluster: RankCluster, ranks: Sequence[int]) -> None:
    """Shut down the connections of some ranks with every rank of the lab."""
    everyone = _connections(cluster)
    ends = {pair for pairs in everyone.values() for pair in pairs}
    own = {r: Shut(tuple((a, b) for a, b in everyone[r] if (b, a) in ends)) for r in ranks}
    counts = {r: len(shared.pairs) for r, shared in own.items()}
    _log.debug("shuts connections between ranks, per rank: %s", counts)
    control.ask(cluster, own, times.QUICK_ANSWER)


def _wake(cluster: RankCluster, waits: Mapping[int, Wait]) -> None:
    """Make ranks return that receive from any rank, into an interrupt.

    Such a receive is tied to no connection, but one byte ends it.
    """
    receivers = {r: wait for r, wait in waits.items() if wait.kind == "recv_any" and wait.options}
    if not receivers:
        return
    control.send_signal(cluster, sorted(receivers), "SIGINT")
    for rank, wait in receivers.items():
        others = [r for r in range(cluster.size) if r != rank and r not in cluster.deaths]
        (group, _), _ = wait.options[0]
        unblock_receive = Wake(group, wait.me, wait.tag)
        for other in others:  # the first that is in the group
            answer = control.ask(cluster, {other: unblock_receive}, times.QUICK_ANSWER).get(other)
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

    ``seen``: the stuck ranks were seen to wait for one another, so all of them have to come back,
    also one that answers late because many share the processors or it imports a library. Otherwise
    labkit does not wait for a rank on this host that gives no answer.
    """
    seconds = times.STUCK.seconds() if seen else times.STOPPED.seconds()
    control.send_signal(cluster, [r for r in busy() if r not in stuck], signum)
    silent = set(stuck) - set(free(cluster, stuck))
    # On another host a rank may be out of reach for a moment.
    is_lost = cluster.is_stopped if seen else cluster.local_process
    lost = set(filter(is_lost, silent))

    def still() -> list[int]:
        return sorted(set(busy()) - lost)

    cluster.clock.wait_for(lambda: not still(), times.FREED.seconds())
    deadline = cluster.clock.now() + seconds
    if waiting := still():  # freed, and waiting again: it caught the error
        control.send_signal(cluster, waiting, signum)
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
    control.send_signal(cluster, running, signum)
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
    """Return whether ranks may have made different calls in a group: their next ones would be
    mistaken for one another. ``samples`` are what they say of themselves; None: they are asked."""
    if cluster.deaths or cluster.busy_ranks():
        return True
    if samples is None:
        samples = control.sample_idle(cluster)
    apart = len(samples) < cluster.size or not in_step(samples)
    _log.debug("the ranks are %s", "out of step" if apart else "in step")
    return apart


# -- C code: an interrupt reaches a rank in it, or in an import, when that is over only -----------


def places_in_c(cluster: RankCluster, ranks: Sequence[int]) -> dict[int, str]:
    """Return where those interrupted ranks stand whose Python has not seen the interrupt.

    The others have it already and are on their way back. They are left out, as are ranks whose
    process is stopped.
    """
    folder = cluster.launcher.record_folder()
    if not folder or protocol.STACK_SIGNAL is None:
        return {}
    paths = {r: protocol.stack_path(folder, cluster.places[r].pid) for r in ranks}
    # One that writes no such file would not survive the signal.
    there = [r for r, path in paths.items() if os.path.exists(path)]
    asked = [r for r in there if cluster.signal(r, protocol.STACK_SIGNAL)]
    deadline = cluster.clock.now() + times.STACK_WRITTEN.seconds()
    in_c: dict[int, str] = {}
    while asked and cluster.clock.now() < deadline:
        cluster.clock.sleep(times.STACK_LOOK)
        for rank in list(asked):
            frames, seen = protocol.read_stack(paths[rank])
            if seen or frames:
                asked.remove(rank)
            if frames and not seen:
                in_c[rank] = describe(frames)
    return in_c


def crashed_in_c(cluster: RankCluster, dead: Iterable[int]) -> str:
    """Return where C code has crashed ranks, of those of the dead that were on this host."""
    if not (folder := cluster.launcher.record_folder()):
        return ""
    where: dict[int, str] = {}
    for rank in dead:
        if -(cluster.deaths[rank] or 0) not in protocol.CRASHES:
            continue
        path = protocol.stack_path(folder, cluster.places[rank].pid)
        if frames := protocol.read_crash(path):
            where[rank] = describe(frames)
    said = "; ".join(f"{label(ranks)} crashed in {place}" for ranks, place in fold(where))
    return f"{said[0].upper()}{said[1:]}." if said else ""


def describe(frames: Sequence[Frame]) -> str:
    """Name the place of a stack: ``re.match, In[3], line 2``.

    The function is the innermost one of Python, which C code was called from; if that is the cell
    itself, there is none to name.
    """
    cells = [f for f in frames if f.filename.startswith(OWN) or "/ipykernel_" in f.filename]
    parts = []
    if any(f.filename.startswith(python_threads.IMPORTING) for f in frames):
        parts.append("import")
    elif frames[0] not in cells[:1]:
        path = PurePath(frames[0].filename)
        module = path.parent.name if path.stem == "__init__" else path.stem
        parts.append(f"{module}.{frames[0].function}")
    for cell in cells[:1]:
        if cell.filename.startswith("In["):
            parts.append(cell.filename)
        elif cell.function != "<module>":
            parts.append(cell.function)
        parts.append(f"line {cell.line}")
    return ", ".join(parts)
