"""Run things on ranks and wait for them: cells, functions, variables."""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cloudpickle
import ipyparallel as ipp

from ..errors import LabError, RankDied
from ..launch.ipyparallel_internals import replies
from ..notebook import show
from ..notebook.live import Live, screen
from ..rank_names import label
from ..wire.outcome import Outcome
from . import diagnosis, recovery
from .cluster import on_rank
from .output import STREAMS, Output, tidy
from .process_group import GroupKeeper
from .survey import look
from .watchdog import Watcher, sample

#: Seconds that a cell has before anybody watches it: short ones cost nothing more.
UNWATCHED_SECONDS = 0.2
#: Seconds between looks at the ranks while something runs.
TICK = 0.2
#: Seconds to wait for the last output of a rank whose cell has ended.
OUTPUT_SECONDS = 5.0


class Pending:
    """Something that runs on some ranks.

    ``send`` takes a view of their engines and returns ipyparallel's AsyncResult for all of
    them: one for each rank would double the cost of an empty cell (``make bench``).

    Raises
    ------
    RankDied
        If one of the ranks has ended.
    """

    def __init__(
        self, keeper: GroupKeeper, ranks: Sequence[int], send: Callable[[Any], Any]
    ) -> None:
        tidy()
        self.keeper = keeper
        self.cluster = cluster = keeper.cluster
        self.ranks = list(ranks)
        if dead := self.dead():
            raise RankDied(*diagnosis.died(cluster, dead))
        engines = [cluster.places[r].engine for r in ranks]
        self.result = send(cluster.client.direct_view(engines))
        #: rank -> ipyparallel's future of its reply
        self.replies = dict(zip(self.ranks, replies(self.result), strict=True))
        self.ending = diagnosis.Ending()  #: how it ended, if not by itself

    def busy(self) -> list[int]:
        """Return the ranks that have not ended, dead ones left out."""
        return [r for r in self.replies if not (self._replied(r) or r in self.cluster.deaths)]

    def dead(self) -> list[int]:
        """Return the ranks whose process has ended."""
        return [r for r in self.ranks if r in self.cluster.deaths]

    def _replied(self, rank: int) -> bool:
        return bool(self.replies[rank].done())

    def failures(self) -> dict[int, str]:
        """Return the names of the errors that ranks have raised, by rank."""
        done = [r for r in self.ranks if self._replied(r) and r not in self.cluster.deaths]
        errors = {r: _unwrap_error(self.replies[r].result()) for r in done}
        return {r: error[0] for r, error in errors.items() if error is not None}

    # -- wait -------------------------------------------------------------------------------

    def wait(self, signum: str | int = "SIGINT", live: Live | None = None) -> None:
        """Wait for every rank: until it ends, dies, or is proved to wait in vain.

        On an interrupt ``signum`` goes to the ranks that are busy, and those that are blocked
        are freed.

        Raises
        ------
        KeyboardInterrupt
            After the ranks have ended.
        """
        try:
            self._follow(live or Live(None))
        except KeyboardInterrupt:
            freed, still = recovery.interrupt(self.cluster, self.busy, signum)
            self.ending = diagnosis.Ending("interrupted", freed, still)
            self._repair(broken=bool(freed) or recovery.out_of_step(self.cluster))
            raise
        finally:
            if live is not None:
                live.clear(wait=self._shows_more())
        if self.ending.kind:
            self._repair(broken=True)
        elif self.failures():
            self._repair(broken=recovery.out_of_step(self.cluster))
        # The reply can be here before the last output is.
        ended = [reply.output for r, reply in self.replies.items() if self._replied(r)]
        concurrent.futures.wait(ended, 0 if self.dead() else OUTPUT_SECONDS)

    def _follow(self, live: Live) -> None:
        concurrent.futures.wait(self.replies.values(), UNWATCHED_SECONDS)
        watcher = None
        while True:
            if self.dead():
                hint = diagnosis.why_died(self.cluster, sample(self.cluster, self.ranks))
                freed, still = recovery.interrupt(self.cluster, self.busy, "SIGINT")
                self.ending = diagnosis.Ending("died", freed, still, hint=hint)
                return
            if not (busy := self.busy()):
                return
            watcher = watcher or Watcher(self.cluster, self.ranks)
            case = watcher.look([self.replies[r] for r in busy], self.failures(), TICK)
            if case is not None and case.stuck & set(self.ranks):
                stuck = sorted(case.stuck)
                self.ending = diagnosis.Ending("deadlock", stuck, case=case)
                self.ending.still = recovery.end(self.cluster, self.busy, stuck)
                return
            live.offer(self._texts, partial(look, self.cluster, watcher.waits()))

    def _repair(self, *, broken: bool) -> None:
        """Leave a process group behind that works, if the ranks allow it."""
        if not broken:
            return
        self.keeper.broken = True
        with contextlib.suppress(LabError):  # the next cell tries again, and says why not
            self.ending.repaired = self.keeper.repair()

    def _texts(self) -> tuple[dict[int, str], dict[int, str]]:
        """Return what the ranks have written to stdout and stderr so far."""
        written = {r: reply.labkit_output for r, reply in self.replies.items()}
        out, err = ({r: seen.text(name) for r, seen in written.items()} for name in STREAMS)
        return out, err

    def _shows_more(self) -> bool:
        """Tell whether something will be shown for certain: output, or an error."""
        out, err = self._texts()
        displays = any(reply.labkit_output.displays for reply in self.replies.values())
        wrong = self.ending.kind or self.dead() or self.failures()
        return bool(any(out.values()) or any(err.values()) or displays or wrong)

    # -- what came of it --------------------------------------------------------------------

    def outcomes(self) -> list[Outcome]:
        """Collect what the ranks have made so far, in rank order."""
        outcomes = [_outcome(rank, self.replies[rank]) for rank in self.ranks]
        for outcome in outcomes:
            if self.ending.kind and outcome.rank in self.ending.freed:
                outcome.stderr = diagnosis.without_torch_log(outcome.stderr)
        return outcomes

    def raise_errors(self, outcomes: Sequence[Outcome]) -> None:
        """Raise what went wrong, if anything did: deaths, then true errors, then deadlocks.

        After an interrupt, where it stopped the ranks.
        """
        errors = {o.rank: o.error for o in outcomes if o.error}
        if self.ending.kind == "interrupted":
            raise diagnosis.interrupted(self.keeper, errors, self.ending) from None
        error = diagnosis.judge(self.keeper, self.dead(), errors, self.ending)
        if error is not None:
            raise error


def _unwrap_error(value: Any) -> tuple[str, str, list[str]] | None:
    """Return name, message and lines of the error that a reply stands for, None if none."""
    if isinstance(value, ipp.error.RemoteError):
        lines = value.traceback.split("\n") if value.traceback else []
        return value.ename, value.evalue, lines
    if isinstance(value, Exception):
        name = type(value).__name__
        return name, str(value), [f"{name}: {value}"]
    if isinstance(value, tuple) and value[:1] == ("error",):  # of labkit.rank.calls
        return value[1]
    return None


def _outcome(rank: int, reply: Any) -> Outcome:
    seen: Output = reply.labkit_output
    stdout, stderr = (seen.text(name) for name in STREAMS)
    out = Outcome(rank, stdout, stderr, list(seen.displays), seen.result)
    value = reply.result() if reply.done() else None
    out.error = _unwrap_error(value)
    out.value = value if out.error is None else None
    return out


# -- cells --------------------------------------------------------------------------------------


def cell(keeper: GroupKeeper, ranks: Sequence[int], code: str) -> Pending:
    """Send a cell to some ranks."""
    keeper.check()
    return Pending(keeper, ranks, lambda view: view.execute(code, silent=False, block=False))


# -- calls --------------------------------------------------------------------------------------


def call(keeper: GroupKeeper, ranks: Sequence[int], payload: bytes) -> list[Any]:
    """Call a pickled function on some ranks; show what it printed; return its results."""
    keeper.check()
    pending = Pending(keeper, ranks, lambda view: view.apply_async(on_rank, "calls.call", payload))
    with contextlib.suppress(KeyboardInterrupt):  # raised again below, and explained
        pending.wait(live=Live(screen()))
    outcomes = [_unwrap(outcome) for outcome in pending.outcomes()]
    show.show(outcomes)
    pending.raise_errors(outcomes)
    return [outcome.value for outcome in outcomes]


def _unwrap(outcome: Outcome) -> Outcome:
    """Turn the answer of ``labkit.rank.calls`` into a value."""
    if outcome.error is None and outcome.value is not None:
        _, content = outcome.value
        outcome.value = None if content is None else cloudpickle.loads(content)
    return outcome


def pull(keeper: GroupKeeper, name: str) -> list[Any]:
    """Return a variable of every rank; LabError names the ranks that do not have it."""
    everyone = range(keeper.cluster.size)
    pending = Pending(keeper, everyone, lambda view: view.apply_async(on_rank, "calls.pull", name))
    pending.wait()
    outcomes = pending.outcomes()
    missing = [o.rank for o in outcomes if o.value and o.value[0] == "missing"]
    if missing:
        raise LabError(f"There is no variable {name!r} on {label(missing)}.")
    outcomes = [_unwrap(o) for o in outcomes]
    pending.raise_errors(outcomes)
    return [o.value for o in outcomes]


def push(keeper: GroupKeeper, payload: bytes) -> None:
    """Set variables on every rank from a pickled dict."""
    everyone = range(keeper.cluster.size)
    pending = Pending(
        keeper, everyone, lambda view: view.apply_async(on_rank, "calls.push", payload)
    )
    pending.wait()
    pending.raise_errors([_unwrap(o) for o in pending.outcomes()])
