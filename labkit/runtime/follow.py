"""Wait for what runs on ranks: until it ends, or it is certain that it will not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from .. import interrupts, times
from ..deadlock.cause import Case
from ..wire.state import RankState
from . import c_code, diagnosis
from .asks import Ask, Asks
from .diagnosis import Ending
from .request import Request
from .survey import look
from .watchdog import Suspicion, Watcher, sample

_log = logging.getLogger(__name__)


#: What ranks have written to stdout and to stderr so far, by rank.
Texts = tuple[dict[int, str], dict[int, str]]
#: Called again and again while something runs, with two functions: what the ranks have written,
#: and what each of them does (which asks the ranks); and what is suspected.
OnTick = Callable[[Callable[[], Texts], Callable[[], Sequence[RankState]], Suspicion | None], None]


def follow(
    request: Request,
    *,
    timeout: float | None = None,
    suspect: float | None = None,
    on_tick: OnTick | None = None,
    watch: Watch | None = None,
    ask: Ask | None = None,
) -> Ending:
    """Wait until every rank has ended, one has died, or some are proved to wait in vain.

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
    watch
        The watch of an earlier call for the same request, to go on with.
    ask
        Lets a person answer what a rank asks (``input()``, a debugger); None: nobody can.

    Returns
    -------
    Ending
        How it ended; also that somebody pressed stop, or that the time was up.
    """
    watch = watch or Watch(request)
    with interrupts.held():
        try:
            with interrupts.stoppable():
                ending = _follow(watch, timeout, suspect, on_tick, Asks(request, ask))
        except KeyboardInterrupt:
            ending = Ending("interrupted", case=watch.suspected())
    _log.debug("what ran on ranks %s: %s", request.ranks, ending.kind or "ended")
    return ending


class Watch:
    """Watches a request from the moment on in which it is no short one."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.watcher: Watcher | None = None

    def look(self, busy: Sequence[int], seconds: float = times.TICK) -> Case | None:
        """Wait for news; return a deadlock of these ranks that is proved."""
        self.watcher = self.watcher or Watcher(self.request.cluster, self.request.ranks)
        replies = [*(self.request.replies[r] for r in busy), *self.request.asked(busy)]
        case = self.watcher.look(replies, self.request.failures(), seconds)
        return case if case is not None and self._concerns(case) else None

    def waiting(self) -> set[int]:
        """Return the ranks that are known to wait for others."""
        return set() if self.watcher is None else set(self.watcher.waits())

    def suspicion(self) -> Suspicion | None:
        """Return what is suspected of these ranks."""
        found = None if self.watcher is None else self.watcher.suspicion
        return found if found is not None and self._concerns(found.case) else None

    def suspected(self) -> Case | None:
        """Return the case of what is suspected."""
        found = self.suspicion()
        return None if found is None else found.case

    def _concerns(self, case: Case) -> bool:
        return bool(case.stuck & set(self.request.ranks))


def _follow(
    watch: Watch,
    timeout: float | None,
    suspect: float | None,
    on_tick: OnTick | None,
    asks: Asks,
) -> Ending:
    request = watch.request
    cluster = request.cluster
    clock = cluster.clock
    deadline = float("inf") if timeout is None else clock.now() + timeout
    checked = False  # that what is suspected is still so
    if watch.watcher is None:
        quiet = times.UNWATCHED if timeout is None else min(times.UNWATCHED, timeout)
        clock.wait(request.replies.values(), quiet)
    while True:
        if dead := request.dead():
            samples = sample(cluster, request.ranks)
            why = diagnosis.why_died(cluster, samples, earlier=not request.noted)
            where = c_code.crashed(cluster, dead)
            return Ending("died", hint=" ".join(filter(None, (why, where))))
        if not (busy := request.busy()):
            return Ending()
        if asks.serve(busy, watch.waiting()):
            continue
        left = max(0.0, deadline - clock.now())
        if (case := watch.look(busy, min(times.TICK, left))) is not None:
            return Ending("deadlock", case=case)
        suspicion = watch.suspicion()
        if suspect is None or suspicion is None or suspicion.seconds() < suspect:
            checked = False
        elif checked:
            return Ending("suspected", case=suspicion.case)
        else:
            assert watch.watcher is not None
            watch.watcher.look_again()
            checked = True
        if clock.now() > deadline:
            return Ending("timeout", case=watch.suspected())
        if on_tick is not None:
            assert watch.watcher is not None
            on_tick(request.texts, partial(look, cluster, watch.watcher.waits()), suspicion)
