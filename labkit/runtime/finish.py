"""Bring what ran on ranks to an end: free them, repair their group, show and raise what came."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cloudpickle

from .. import interrupts, times
from ..errors import Interrupted, LabError, RankError
from ..wire.outcome import Outcome
from . import c_code, diagnosis, messages, pace, recovery, too_short, unlike_calls
from .diagnosis import Ending
from .request import Request

#: What has ended a process group, by how the cell has ended: said of what still belongs to it.
BROKEN_BY = {
    "": "an error",
    "deadlock": "the deadlock",
    "suspected": "the suspected deadlock",
    "died": "the end of a rank",
    "interrupted": "the stop",
    "timeout": "the time limit",
}

#: Said of a rank whose output did not all come in time.
REST = "The rest of this output has not arrived; it is shown with the next cell.\n"


@dataclass(frozen=True)
class Finished:
    """What came of a request."""

    outcomes: list[Outcome]  #: of each rank that was asked, in that order
    ending: Ending
    error: RankError | Interrupted | None  #: what went wrong, all in one

    def shows_more(self) -> bool:
        """Tell whether there is something to show for certain: output, or an error."""
        written = any(o.stdout or o.stderr or o.displays for o in self.outcomes)
        return written or self.error is not None


def finish(
    request: Request,
    ending: Ending,
    *,
    signum: str | int = "SIGINT",
    show: Callable[[Finished], None] | None = None,
    tolerate: bool = False,
) -> Finished:
    """End what still runs, leave a process group behind that works, show and raise what came.

    Parameters
    ----------
    ending
        What ``follow`` returned.
    signum
        What ranks get that still run after an interrupt; those that are blocked are freed.
    show
        Shows what the ranks have made, before an error is raised.
    tolerate
        Return what went wrong (``Finished.error``) rather than raise it.

    Raises
    ------
    RankError
        What went wrong, if anything did: deaths, then true errors, then deadlocks.
    Interrupted
        If somebody pressed stop.
    """
    with interrupts.held():
        try:
            _end(request, ending, signum)
        except KeyboardInterrupt:  # pressed again, for long
            ending = Ending("interrupted")
            _end(request, ending, signum)
        with contextlib.suppress(KeyboardInterrupt):  # what came of it is still worth showing
            _repair(request, ending)
            _wait_for_output(request)
        finished = _collect(request, ending)
        pace.measure(request.cluster, filter(request.has_replied, request.ranks))
        if finished.error is None and interrupts.take():
            finished = replace(finished, error=diagnosis.stopped_too_late())
        if show is not None:
            show(finished)
        if finished.error is not None and not tolerate:
            raise finished.error
        return finished


def _end(request: Request, ending: Ending, signum: str | int) -> None:
    """Free the ranks that are blocked and interrupt the others, unless all went by itself."""
    if ending.case is not None and ending.kind in ("deadlock", "suspected"):
        ending.freed = sorted(ending.case.stuck)
        ending.still = recovery.end(request.cluster, request.busy, ending.freed)
    elif ending.kind:
        chosen = signum if ending.kind == "interrupted" else "SIGINT"
        ending.freed, ending.still = recovery.interrupt(request.cluster, request.busy, chosen)
        if ending.still:
            cluster = request.cluster
            in_c = c_code.places(cluster, ending.still)
            ending.freed = [r for r in ending.freed if r not in in_c]
            # One that has not said where it is may just have had no processor.
            coming = [r for r in ending.still if r not in in_c and not cluster.is_stopped(r)]
            ending.still = recovery.wait_for(cluster, request.busy, coming)
            ending.in_c = {r: place for r, place in in_c.items() if r in ending.still}
        request.group.in_c = ending.in_c


def _repair(request: Request, ending: Ending) -> None:
    """Leave a process group behind that works, if the ranks allow it."""
    if ending.kind in ("died", "deadlock", "suspected"):
        broken = True
    elif ending.kind or request.failures():
        broken = bool(ending.freed) or recovery.out_of_step(request.cluster)
    else:
        broken = False
    if not broken:
        return
    request.group.broken = True
    request.group.cause = BROKEN_BY[ending.kind]
    with contextlib.suppress(LabError):  # the next cell tries again, and says why not
        ending.repaired = request.group.repair()


def _wait_for_output(request: Request) -> None:
    """Wait for the last output of the ranks that have replied, for as long as more comes."""
    ranks = request.lacking()
    futures = [request.replies[r].output for r in ranks]
    count = -1
    while count != (count := sum(request.replies[r].labkit_output.count for r in ranks)):
        stopped = interrupts.has_come()
        bound = times.LAST_OUTPUT_STOPPED if stopped else times.LAST_OUTPUT
        if request.cluster.clock.wait(futures, bound.seconds()) or stopped:
            return


def _collect(request: Request, ending: Ending) -> Finished:
    lacking = request.lacking()  # first: what comes meanwhile is shown
    outcomes = request.outcomes()
    for outcome in outcomes:
        reply = request.replies[outcome.rank]
        request.cluster.late.keep(reply, {"stdout": outcome.stdout, "stderr": outcome.stderr})
    for outcome in outcomes:
        if outcome.rank in ending.freed:
            outcome.stderr = diagnosis.without_torch_log(outcome.stderr)
        if outcome.rank in lacking:
            outcome.stderr += REST
    errors = {o.rank: o.error for o in outcomes if o.error}
    error = diagnosis.judge(request.group, request.dead(), errors, ending)
    well = error is None and not ending.kind
    told = request.messages()
    if request.noted:
        request.group.messages = partial(messages.find, told, well=well)
    if well:
        for warnings in (too_short.find(told), unlike_calls.find(request.collectives())):
            for outcome in outcomes:
                outcome.stderr += "".join(f"{w}\n" for w in warnings.get(outcome.rank, ()))
    return Finished(outcomes, ending, error)


def values(outcomes: list[Outcome]) -> list[Any]:
    """Return what a pickled function (``request.call``) gave on each rank, None where nothing.

    It is read from pickles, so types of the learner's own are loaded here.
    """
    return [
        None if outcome.value is None or outcome.value[1] is None
        else cloudpickle.loads(outcome.value[1])
        for outcome in outcomes
    ]  # fmt: skip
