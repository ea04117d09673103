"""Wait for what runs on ranks: until it ends, or it is certain that it will not."""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from ..wire.state import RankState
from . import diagnosis
from .diagnosis import Ending
from .request import Request
from .survey import look
from .watchdog import Watcher, sample

_log = logging.getLogger(__name__)

#: Seconds that a cell has before anybody watches it: short ones cost nothing more.
UNWATCHED_SECONDS = 0.2
#: Seconds between looks at the ranks while something runs.
TICK = 0.2

#: What ranks have written to stdout and to stderr so far, by rank.
Texts = tuple[dict[int, str], dict[int, str]]
#: Called again and again while something runs, with two functions: what the ranks have written,
#: and what each of them does (which asks the ranks).
OnTick = Callable[[Callable[[], Texts], Callable[[], Sequence[RankState]]], None]


def follow(
    request: Request, *, timeout: float | None = None, on_tick: OnTick | None = None
) -> Ending:
    """Wait until every rank has ended, one has died, or some are proved to wait in vain.

    Nothing is ended here: that is for ``finish``.

    Parameters
    ----------
    timeout
        Seconds after which it does not wait any more; None: no limit.
    on_tick
        Called a few times a second after the first moment, to show how it goes.

    Returns
    -------
    Ending
        How it ended; also that somebody pressed stop, or that the time was up.
    """
    try:
        ending = _follow(request, timeout, on_tick)
    except KeyboardInterrupt:
        ending = Ending("interrupted")
    _log.debug("what ran on ranks %s: %s", request.ranks, ending.kind or "ended")
    return ending


def _follow(request: Request, timeout: float | None, on_tick: OnTick | None) -> Ending:
    cluster = request.cluster
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    concurrent.futures.wait(request.replies.values(), UNWATCHED_SECONDS)
    watcher = None
    while True:
        if request.dead():
            hint = diagnosis.why_died(cluster, sample(cluster, request.ranks))
            return Ending("died", hint=hint)
        if not (busy := request.busy()):
            return Ending()
        watcher = watcher or Watcher(cluster, request.ranks)
        case = watcher.look([request.replies[r] for r in busy], request.failures(), TICK)
        if case is not None and case.stuck & set(request.ranks):
            return Ending("deadlock", case=case)
        if time.monotonic() > deadline:
            return Ending("timeout")
        if on_tick is not None:
            on_tick(request.texts, partial(look, cluster, watcher.waits()))
