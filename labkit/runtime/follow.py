"""Follow what runs on ranks until it ends, or it is certain that it will not; then finish it: free
the ranks, repair their group, show and raise what came of it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from ..base import interrupts, times
from ..base.errors import Interrupted, LabError, RankError
from ..wire.state import Outcome, RankState
from . import control, diagnosis, messages, recovery, unlike_calls
from .diagnosis import Ending
from .request import Ask, Asks, Request
from .watchdog import Suspicion, Watcher

_log = logging.getLogger(__name__)


#: What ranks have written to stdout and to stderr so far, by rank.
Texts = tuple[dict[int, str], dict[int, str]]
#: Called again and again while something runs, with two functions: what the ranks have written,
#: and what each of them does (which asks the ranks); and what is suspected.
OnTick = Callable[[Callable[[], Texts], Callable[[], Sequence[RankState]], Suspicion | None], None]

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


def follow(
    request: Request,
    *,
    timeout: float | None = None,
    suspect: float | None = None,
    on_tick: OnTick | None = None,
    ask: Ask | None = None,
) -> Ending:
    """Wait until every rank has ended, one has died, or some are proved to block forever.

    Nothing is ended here: that is for ``finish``.

    Parameters
    ----------
    timeout
        Seconds after which it does not wait any more; None: no limit.
    suspect
        Seconds that a deadlock may be suspected before it is taken for one; None: it never is,
        somebody looks on and decides.
    on_tick
        Called a few times a second after the first moment, to show how it goes.
    ask
        Lets the user answer what a rank asks (``input()``, a debugger); None: nobody can.

    Returns
    -------
    Ending
        How it ended; also that somebody pressed stop, or that the time was up.
    """
    watcher = Watcher(request.cluster, request.ranks)
    with interrupts.shielded():
        try:
            with interrupts.cancellable():
                ending = _follow(request, watcher, timeout, suspect, on_tick, Asks(request, ask))
        except KeyboardInterrupt:
            ending = _stopped_by("interrupted", _suspicion(request, watcher))
    _log.debug("what ran on ranks %s: %s", request.ranks, ending.kind or "ended")
    return ending


def _follow(
    request: Request,
    watcher: Watcher,
    timeout: float | None,
    suspect: float | None,
    on_tick: OnTick | None,
    asks: Asks,
) -> Ending:
    cluster, clock = request.cluster, request.cluster.clock
    deadline = float("inf") if timeout is None else clock.now() + timeout
    clock.wait(request.replies.values(), min(times.UNWATCHED, deadline - clock.now()))
    while True:
        if dead := request.dead():
            samples = control.sample(cluster, request.ranks)
            why = diagnosis.death_reason(cluster, samples, earlier=not request.noted)
            where = recovery.crashed_in_c(cluster, dead)
            return Ending("died", hint=" ".join(filter(None, (why, where))))
        if not (busy := request.busy()):
            return Ending()
        if asks.serve(busy, watcher.waits()):
            continue
        news = [*(request.replies[r] for r in busy), *request.asked(busy)]
        left = max(0.0, deadline - clock.now())
        case = watcher.poll(news, request.failures(), min(times.TICK, left))
        if case is not None and case.stuck & set(request.ranks):
            return Ending("deadlock", case=case)
        suspicion = _suspicion(request, watcher)
        if watcher.outlasts(suspect) and suspicion is not None:
            return Ending("suspected", case=suspicion.case)
        if clock.now() > deadline:
            return _stopped_by("timeout", suspicion)
        if on_tick is not None:
            on_tick(
                request.texts, partial(control.list_states, cluster, watcher.waits()), suspicion
            )


def _suspicion(request: Request, watcher: Watcher) -> Suspicion | None:
    """Return what is suspected of the ranks of a request."""
    found = watcher.suspicion
    return found if found is not None and found.case.stuck & set(request.ranks) else None


def _stopped_by(kind: Literal["interrupted", "timeout"], suspicion: Suspicion | None) -> Ending:
    return Ending(kind, case=None if suspicion is None else suspicion.case)


@dataclass(frozen=True)
class Finished:
    """What came of a request."""

    outcomes: list[Outcome]  #: of each rank that was asked, in that order
    ending: Ending
    error: RankError | Interrupted | None  #: what went wrong, all in one

    def shows_more(self) -> bool:
        """Return whether there is something to show for certain: output, or an error."""
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
    with interrupts.shielded():
        try:
            _free(request, ending, signum)
        except KeyboardInterrupt:  # pressed again, for long
            ending = Ending("interrupted")
            _free(request, ending, signum)
        with contextlib.suppress(KeyboardInterrupt):  # what came of it is still worth showing
            _repair(request, ending)
            _wait_for_output(request)
        finished = _report(request, ending)
        control.measure_pace(request.cluster, filter(request.has_replied, request.ranks))
        if finished.error is None and interrupts.take():
            finished = replace(finished, error=diagnosis.stopped_too_late())
        if show is not None:
            show(finished)
        if finished.error is not None and not tolerate:
            raise finished.error
        return finished


def _free(request: Request, ending: Ending, signum: str | int) -> None:
    """Free the ranks that are blocked and interrupt the others, unless all went by itself."""
    cluster, busy = request.cluster, request.busy
    if ending.case is not None and ending.kind in ("deadlock", "suspected"):
        ending.freed = sorted(ending.case.stuck)
        ending.still = recovery.end(cluster, busy, ending.freed)
    elif ending.kind:
        chosen = signum if ending.kind == "interrupted" else "SIGINT"
        ending.freed, ending.still = recovery.interrupt(cluster, busy, chosen)
        if ending.still:
            in_c = recovery.places_in_c(cluster, ending.still)
            ending.freed = [r for r in ending.freed if r not in in_c]
            # One that has not said where it is may just have had no processor.
            coming = [r for r in ending.still if r not in in_c and not cluster.is_stopped(r)]
            ending.still = recovery.wait_for(cluster, busy, coming)
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


def _report(request: Request, ending: Ending) -> Finished:
    """Collect what the ranks made, with labkit's warnings, and make one error of what failed."""
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
    group = request.group
    error = diagnosis.judge(group.cluster, group.join, request.dead(), errors, ending)
    well = error is None and not ending.kind
    sent = request.messages()
    if request.noted:
        group.messages = partial(messages.list_messages, sent, well=well)
    if well:
        unlike = unlike_calls.find(request.collectives())
        for warnings in (messages.find_too_short(sent), unlike):
            for outcome in outcomes:
                outcome.stderr += "".join(f"{w}\n" for w in warnings.get(outcome.rank, ()))
    return Finished(outcomes, ending, error)
