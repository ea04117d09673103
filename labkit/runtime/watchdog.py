"""Watch the ranks while something runs on them, and sample only those that stand still.

A rank that works is not asked anything: it looks at itself ten times a second (microseconds)
and answers the question that it was given once, when it waits for another rank. Only then are the
waiting ranks and those that have ended compared, for only they can be part of a deadlock.
"""

from __future__ import annotations

import concurrent.futures
import logging
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from ..base import times
from ..base.clock import SYSTEM, Clock
from ..deadlock import message
from ..deadlock.case import Case
from ..deadlock.confirmation import Confirmation
from ..deadlock.exit_reason import ENDED, NOT_ASKED, ExitReason
from ..deadlock.needs import Situation
from ..deadlock.replay import MARK, Briefly, Written, describe_verdict
from ..deadlock.samples import renumber
from ..deadlock.wait_graph import Verdict, judge
from ..launch import ipyparallel_internals
from ..wire import python_threads
from ..wire.requests import AskSample, AskWatch, Question, Watched
from ..wire.samples import Sample
from ..wire.state import RankState
from . import control
from .cluster import RankCluster

_log = logging.getLogger(__name__)

#: Samples in a row that may miss what is suspected, as long as its ranks have not run.
MISSES = 2


@dataclass(frozen=True)
class Suspicion:
    """Ranks that block forever by all that can be seen; what cannot be seen is in the case."""

    case: Case
    since: float  #: of the clock
    clock: Clock = field(default=SYSTEM, compare=False)

    def seconds(self) -> float:
        """Return how long it has lasted."""
        return self.clock.now() - self.since


class Watcher:
    """Follow the ranks of a lab while something is out.

    ``asked``: The ranks that were asked to run it.
    """

    def __init__(self, cluster: RankCluster, asked: Iterable[int]) -> None:
        self.cluster = cluster
        self.clock = cluster.clock
        self.asked = frozenset(asked)
        self.waiting: dict[int, Sample] = {}  #: what waiting ranks said last
        self.suspicion: Suspicion | None = None
        self._is_old = False  # it has lasted as long as it may, and is judged once more
        self._misses = 0  # samples in a row that did not show what is suspected
        self._heard: dict[int, float] = {}  # rank -> when it said what it waits for
        self._open: dict[int, control.Posted[Watched]] = {}  # by rank
        self._primed: set[int] = set()
        self._judged: object = None  # the news that were judged last
        self._pause = times.LOOK_AGAIN
        self._due = 0.0

    def poll(
        self, replies: Sequence[Any], failures: Mapping[int, str], seconds: float
    ) -> Case | None:
        """Wait up to ``seconds`` for news; return a deadlock if there is one for certain.

        ``replies`` are the futures to wait for, ``failures`` what ranks have raised so far.
        """
        gone = self._wait_for_news(replies, seconds)
        if not self.waiting:
            self.suspicion = None
            return None
        news = (gone, tuple(sorted((r, s.stamp) for r, s in self.waiting.items())))
        if news != self._judged:
            self._pause = times.LOOK_AGAIN
        elif self.clock.now() < self._due:
            return None
        else:
            self._pause = min(2 * self._pause, times.LOOK_AGAIN_LONGEST)
        case = self._judge(gone, failures)
        longest = self._pause if self.suspicion is None else times.LOOK_AGAIN_SUSPECTED
        self._judged, self._due = news, self.clock.now() + min(self._pause, longest)
        return case

    def outlasts(self, seconds: float | None) -> bool:
        """Return whether the suspicion has lasted so long, and the ranks were judged once more
        since; None: it never does."""
        if seconds is None or self.suspicion is None or self.suspicion.seconds() < seconds:
            self._is_old = False
        elif self._is_old:
            return True
        else:
            self._is_old = True
            self._due = 0.0  # they are judged at the next ``poll``, even without news
        return False

    def waits(self) -> dict[int, Sample]:
        """Return the ranks that are known to wait, with the seconds that they have waited."""
        now = self.clock.now()
        return {
            r: s.waited(now - self._heard[r]) for r, s in self.waiting.items() if s.wait is not None
        }

    # -- how the ranks of a lab are asked; other processes are by other ways --------------------

    def post(self, rank: int, question: Question[Any]) -> control.Posted[Any] | None:
        """Send a question to a rank; None if it is not there."""
        return control.post(self.cluster, rank, question)

    def sample(self, ranks: Sequence[int]) -> dict[int, Sample]:
        """Ask some ranks what they wait for and what they have provided."""
        return control.sample(self.cluster, ranks)

    def outside(self) -> tuple[str, ...]:
        """Return what outside the ranks may still give work to one that has none."""
        return doubts_outside(self.cluster.client, self.cluster.has_strangers())

    # -- sample ---------------------------------------------------------------------------------

    def _wait_for_news(self, replies: Sequence[Any], seconds: float) -> frozenset[int]:
        """Wait for replies and for what ranks say of themselves; return the ranks that are gone."""
        for rank in self.cluster.busy_ranks():
            if rank not in self._open:
                known = self.waiting[rank].stamp if rank in self.waiting else ()
                if (posted := self.post(rank, AskWatch(known))) is not None:
                    self._open[rank] = posted
        news = [*replies, *(posted.future for posted in self._open.values())]
        self.clock.wait(news, seconds, return_when=concurrent.futures.FIRST_COMPLETED)
        answered = {r: p.answer() for r, p in self._open.items() if p.future.done()}
        said = {
            r: a.sample for r, a in answered.items() if a.sample and a.sample.state == "waiting"
        }
        self._open = {r: p for r, p in self._open.items() if r not in answered}
        if said:
            samples = renumber(said)
            _log.debug("say that they wait: %s", Briefly(samples))
            self._note(samples)
        # Their replies are here before they are asked: what they have provided is final.
        gone = frozenset(range(self.cluster.size)) - frozenset(self.cluster.busy_ranks())
        for rank in gone - self._primed:  # it looks at itself from now on, should that matter
            self.post(rank, AskSample())
        self._primed |= gone
        return gone

    def _note(self, samples: Mapping[int, Sample]) -> None:
        self.waiting.update(samples)
        self._heard.update(dict.fromkeys(samples, self.clock.now()))

    def _sample(self, ranks: Iterable[int], gone: frozenset[int]) -> Situation:
        """Ask some ranks what they wait for and what they have provided."""
        dead = frozenset(self.cluster.deaths)
        # Before and after: what is over by then may have come after a rank has answered, and what
        # has given a rank work may be over itself.
        before = self.outside()
        samples = self.sample(sorted(frozenset(ranks) - dead))
        outside = tuple(dict.fromkeys((*before, *self.outside())))
        gone -= frozenset(self.cluster.busy_ranks())
        return Situation(
            self.cluster.size, samples, gone, dead, not_asked=gone - self.asked, outside=outside
        )

    def _update(self, situation: Situation) -> None:
        """Forget the waits of ranks that have run since: they say by themselves when they wait
        again. A rank that has not run is only awake by chance, and one that gave no answer (its
        host may be out of reach for a moment) would not report the same wait again."""
        for rank, old in list(self.waiting.items()):
            new = situation.samples.get(rank)
            if new is not None and new.wait is not None:
                self._note({rank: new})
            elif rank in situation.dead or (new is not None and new.stamp != old.stamp):
                del self.waiting[rank]

    # -- judge and confirm ----------------------------------------------------------------------

    def _judge(self, gone: frozenset[int], failures: Mapping[int, str]) -> Case | None:
        """Return a case that is proved; note one that is suspected."""
        first = self._sample(self.waiting.keys() | gone, gone)
        self._update(first)
        verdict = _judge(first)
        words, samples = describe_verdict(verdict), Briefly(first.samples)
        _log.debug("ended %s, %s: %s", sorted(gone), words, samples)
        if not verdict.suspected:
            self._refute(first)
            return None
        situation, verdict = self._confirm(gone)
        exit_reasons = self._exit_reasons(gone, failures)
        if verdict.proved:
            case = Case(situation, verdict.proved, exit_reasons)
            _log.info("declares a deadlock: %s", message.headline(case))
            return case
        self._suspect(Case(situation, verdict.suspected, exit_reasons, verdict.doubts))
        return None

    def _confirm(self, gone: frozenset[int]) -> tuple[Situation, Verdict]:
        """Sample all ranks again, since others may wait by now; return what the last two samples
        agree in."""
        everyone = range(self.cluster.size)
        confirmation = Confirmation(self._sample(everyone, gone))
        while True:
            self.clock.sleep(times.CONFIRM.seconds())
            situation = self._sample(everyone, gone)
            verdict = _judge(confirmation.agreed(situation))
            words, samples = describe_verdict(verdict), Briefly(situation.samples)
            _log.debug("after %g s, %s: %s", times.CONFIRM.seconds(), words, samples)
            if confirmation.is_final(situation, verdict):
                return situation, verdict

    def _suspect(self, case: Case) -> None:
        """Record a case that is not proved, or that there is none."""
        if not case.stuck:
            self._refute(case.situation)
            return
        self._misses = 0
        before = self.suspicion
        if before is None or not before.case.stuck & case.stuck:
            doubts = "; ".join(case.doubts)
            _log.info("suspects a deadlock: %s (%s)", message.headline(case), doubts)
            self.suspicion = Suspicion(case, self.clock.now(), self.clock)
        else:
            self.suspicion = replace(before, case=case)

    def _refute(self, situation: Situation) -> None:
        """Drop a suspicion: at once if a rank of it has run or somebody can go on, else when data
        moved several times in a row; one byte that moves by chance is no sign that somebody comes.
        """
        if self.suspicion is None:
            return
        before, now = self.suspicion.case.situation.samples, situation.samples
        self._misses += 1
        same = all(
            r in now and now[r].wait is not None and now[r].stamp == before[r].stamp
            for r in self.suspicion.case.stuck
        )
        at_rest = {r: replace(s, still=True) for r, s in now.items()}
        same = same and bool(judge(replace(situation, samples=at_rest)).suspected)
        if not same or self._misses > MISSES:
            self.suspicion, self._misses = None, 0

    def _exit_reasons(
        self, gone: frozenset[int], failures: Mapping[int, str]
    ) -> dict[int, ExitReason]:
        def exit_reason(rank: int) -> ExitReason:
            if rank in self.cluster.deaths:
                return ExitReason("died", code=self.cluster.deaths[rank])
            if rank not in self.asked:
                return NOT_ASKED
            return ExitReason("raised", failures[rank]) if rank in failures else ENDED

        return {rank: exit_reason(rank) for rank in gone}


def _judge(situation: Situation) -> Verdict:
    """Judge a situation, and write down all that the verdict rests on."""
    _log.debug("%s%s", MARK, Written(situation))
    return judge(situation)


def find_fault(cluster: RankCluster, states: Sequence[RankState]) -> list[str]:
    """Return in one sentence who waits for whom and is blocked, if it is seen within a moment;
    none if all may go on. ``states`` is what the ranks do: nobody is asked where none waits."""
    if not any(state.state == "waiting" for state in states):
        return []
    watcher = Watcher(cluster, cluster.asked)
    deadline = cluster.clock.now() + times.FAULT_FOUND.seconds()
    while cluster.clock.now() < deadline:
        if (case := watcher.poll((), {}, times.FAULT_TICK)) is not None:
            return [f"Deadlock: {message.headline(case)}"]
    found = watcher.suspicion
    return message.suspicion(found.case)[:1] if found is not None else []


# -- what outside the ranks may still give work to one that has none ------------------------------

THREAD = "a thread of this notebook is alive, which may send something to a rank: {}"
TASK = "a task of lab.client is under way, which may go to any rank"
TIMER = "a timer of this notebook will call {}, which may send something to a rank"
CLIENT = "another client has connected to the lab, and may send something to a rank"
#: Timers of the system, and the signals that they send.
_TIMERS = {
    signal.ITIMER_REAL: signal.SIGALRM,
    signal.ITIMER_VIRTUAL: signal.SIGVTALRM,
    signal.ITIMER_PROF: signal.SIGPROF,
}
#: Names by which things are sent to ranks: an alarm that only raises an error has none of them.
_SENDING = frozenset(
    ["apply", "apply_async", "apply_sync", "execute", "map", "map_async", "map_sync", "push", "run"]
)


def doubts_outside(client: Any, strangers: bool = False) -> tuple[str, ...]:
    """Return what may still send something to a rank: threads and timers of the notebook, tasks of
    its views, other clients if there are any (``strangers``)."""
    threads = python_threads.look({threading.get_ident()})
    found = [THREAD.format(t.name) for t in threads if not python_threads.joins(t.frame)]
    found += [TIMER.format(name) for name in _alarms()]
    if ipyparallel_internals.has_tasks(client):
        found.append(TASK)
    if strangers:
        found.append(CLIENT)
    return tuple(found)


def _alarms() -> Iterator[str]:
    """Name the functions that timers of the system will call and that may send something."""
    for timer, number in _TIMERS.items():
        handler = signal.getsignal(number)
        if callable(handler) and signal.getitimer(timer)[0] > 0:
            code = python_threads.code_of(handler)
            if code is None or _SENDING & set(_names(code)):
                yield getattr(handler, "__name__", repr(handler))


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function uses, those of functions inside it too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
