"""Find out what every rank does now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import times
from ..deadlock import message
from ..wire.exit_code import describe_exit
from ..wire.requests import Activity, AskActivity
from ..wire.samples import Sample, Wait
from ..wire.state import RankState
from . import control
from .cluster import RankCluster
from .watchdog import Watcher, sample


def survey(cluster: RankCluster) -> list[RankState]:
    """Ask every rank what it does and, if it may be waiting, for what."""
    states = look(cluster)
    running = [s.rank for s in states if s.state == "running"]
    if not running:
        return states
    sample(cluster, running)
    cluster.clock.sleep(times.STOOD_STILL.seconds())
    samples = sample(cluster, running)
    waits = {r: s for r, s in samples.items() if s.wait is not None}
    return [_state(cluster, s.rank, None, waits[s.rank]) if s.rank in waits else s for s in states]


def find_fault(cluster: RankCluster, states: Sequence[RankState]) -> list[str]:
    """Say in one sentence who waits for whom in vain, if it is seen within a moment; none if all
    may go on.

    Parameters
    ----------
    states
        What the ranks do: nobody is asked where none waits.
    """
    if not any(state.state == "waiting" for state in states):
        return []
    watcher = Watcher(cluster, sorted(cluster.asked))
    deadline = cluster.clock.now() + times.FAULT_FOUND.seconds()
    while cluster.clock.now() < deadline:
        if (case := watcher.look((), {}, times.FAULT_TICK)) is not None:
            return [f"Deadlock: {message.headline(case)}"]
    found = watcher.suspicion
    return message.suspicion(found.case)[:1] if found is not None else []


def look(cluster: RankCluster, waits: Mapping[int, Sample] | None = None) -> list[RankState]:
    """Ask every rank what it does.

    Parameters
    ----------
    waits
        What ranks wait for, as far as that is known already.
    """
    everyone = range(len(cluster.places))
    answers = control.ask(cluster, dict.fromkeys(everyone, AskActivity()))
    known = waits or {}
    return [_state(cluster, r, answers.get(r), known.get(r)) for r in everyone]


def _state(
    cluster: RankCluster, rank: int, answer: Activity | None, sample: Sample | None
) -> RankState:
    place = cluster.places[rank]
    about: dict[str, Any] = {}
    if rank in cluster.deaths:
        about = {"state": "dead", "detail": describe_exit(cluster.deaths[rank])}
    elif sample is not None and sample.wait is not None:
        about = waiting(sample, sample.wait)
    elif answer is None:
        about = {"state": "no answer", "detail": _why_silent(cluster, rank)}
    else:
        state = "asking" if answer.asks else "running" if answer.busy else "idle"
        about = {"state": state, "where": answer.where, "line": answer.line, "detail": answer.asks}
    if answer is not None:
        about |= {"memory": answer.memory, "gpu": answer.gpu, "left": answer.left}
    return RankState(place.rank, place.host, place.pid, place.device, place.backend, **about)


def waiting(sample: Sample, wait: Wait) -> dict[str, Any]:
    """Return what a RankState says of a rank that waits."""
    return {
        "state": "waiting",
        "detail": message.describe(wait, sample.entry),
        "where": wait.where,
        "line": wait.line,
        "seconds": wait.seconds,
    }


def _why_silent(cluster: RankCluster, rank: int) -> str:
    """Say why a rank does not answer, where the system knows."""
    return "its process is stopped: SIGSTOP or a debugger" if cluster.is_stopped(rank) else ""
