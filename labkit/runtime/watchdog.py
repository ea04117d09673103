"""Watch the ranks while something runs on them, and ask only those that stand still.

A rank that works is not asked anything: it looks at itself ten times a second (microseconds)
and answers the question that it was given once, when it waits for another rank. Only then are the
waiting ranks and those that have ended compared, for only they can be part of a deadlock.
"""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import times
from ..clock import SYSTEM, Clock
from ..deadlock import message
from ..deadlock.cause import Case
from ..deadlock.fate import ENDED, NOT_ASKED, Fate
from ..deadlock.needs import Situation
from ..deadlock.replay import MARK, Written, tell
from ..deadlock.samples import renumber
from ..deadlock.wait_graph import Verdict, about, judge
from ..wire.requests import AskSample, AskWatch, Question, Watched
from ..wire.samples import Issuer, Sample
from . import control, outside
from .cluster import RankCluster

_log = logging.getLogger(__name__)

#: How often it looks again while some rank neither runs nor stands still for certain, so that
#: the message has all that wait.
CONFIRM_TIMES = 6
#: Looks in a row that may miss what is suspected, as long as its ranks have not run.
MISSES = 2


def sample(cluster: RankCluster, ranks: Sequence[int]) -> dict[int, Sample]:
    """Ask some ranks what they wait for and what they have provided."""
    return renumber(control.ask(cluster, dict.fromkeys(ranks, AskSample())))


@dataclass(frozen=True)
class Suspicion:
    """Ranks that wait in vain by all that can be seen; what cannot be seen is in the case."""

    case: Case
    since: float  #: of the clock
    clock: Clock = field(default=SYSTEM, compare=False)

    def seconds(self) -> float:
        """Return how long it has lasted."""
        return self.clock.now() - self.since


class Watcher:
    """Follow the ranks of a lab while something is out.

    Parameters
    ----------
    asked
        The ranks that were asked to run it.
    """

    def __init__(self, cluster: RankCluster, asked: Sequence[int]) -> None:
        self.cluster = cluster
        self.clock = cluster.clock
        self.asked = list(asked)
        self.waiting: dict[int, Sample] = {}  #: what waiting ranks said last
        self.suspicion: Suspicion | None = None
        self._misses = 0  # looks in a row that did not see what is suspected
        self._told: dict[int, float] = {}  # rank -> when it said that
        self._open: dict[int, control.Posted[Watched]] = {}  # by rank
        self._primed: set[int] = set()
        self._known: dict[int, tuple[int, ...]] = {}
        self._seen: object = None
        self._pause = times.LOOK_AGAIN
        self._due = 0.0

    def look(
        self, replies: Sequence[Any], failures: Mapping[int, str], seconds: float
    ) -> Case | None:
        """Wait up to ``seconds`` for news; return a deadlock if there is one for certain.

        ``replies`` are the futures to wait for, ``failures`` what ranks have raised so far.
        """
        busy = self.cluster.busy_ranks()
        for rank in busy:
            if rank not in self._open:
                question = AskWatch(self._known.get(rank, ()))
                posted = self.post(rank, question)
                if posted is not None:
                    self._open[rank] = posted
        self.clock.wait(
            [*replies, *(posted.future for posted in self._open.values())],
            seconds,
            return_when=concurrent.futures.FIRST_COMPLETED,
        )
        self._collect()
        # Their replies are here before they are asked: what they have provided is final.
        gone = frozenset(range(self.cluster.size)) - frozenset(self.cluster.busy_ranks())
        for rank in gone - self._primed:  # it looks at itself from now on, should that matter
            self.post(rank, AskSample())
        self._primed |= gone
        news = (gone, tuple(sorted((r, s.stamp) for r, s in self.waiting.items())))
        now = self.clock.now()
        if not self.waiting:
            self.suspicion = None
            return None
        if news == self._seen and now < self._due:
            return None
        short, long = times.LOOK_AGAIN, times.LOOK_AGAIN_LONGEST
        self._pause = short if news != self._seen else min(2 * self._pause, long)
        case = self._judge(gone, failures)
        pause = (
            self._pause if self.suspicion is None else min(self._pause, times.LOOK_AGAIN_SUSPECTED)
        )
        self._seen, self._due = news, self.clock.now() + pause
        return case

    def look_again(self) -> None:
        """Look at the ranks at the next ``look``, even without news."""
        self._due = 0.0

    def waits(self) -> dict[int, Sample]:
        """Return the ranks that are known to wait, with the seconds that they have waited."""
        now = self.clock.now()
        return {
            r: s.waited(now - self._told[r]) for r, s in self.waiting.items() if s.wait is not None
        }

    # -- how the ranks of a lab are asked; other processes are by other ways --------------------

    def post(self, rank: int, question: Question[Any]) -> control.Posted[Any] | None:
        """Send a question to a rank; None if it is not there."""
        return control.post(self.cluster, rank, question)

    def sample(self, ranks: Sequence[int]) -> dict[int, Sample]:
        """Ask some ranks what they wait for and what they have provided."""
        return sample(self.cluster, ranks)

    def outside(self) -> tuple[str, ...]:
        """Say what outside the ranks may still give work to one that has none."""
        return outside.doubts(self.cluster.client, self.cluster.has_strangers())

    # -- what is found --------------------------------------------------------------------------

    def _collect(self) -> None:
        """Read what ranks have said of themselves."""
        told = {}
        for rank, posted in list(self._open.items()):
            if posted.future.done():
                del self._open[rank]
                sample = posted.answer().sample
                if sample is not None and sample.state == "waiting":
                    told[rank] = sample
                    self._known[rank] = sample.stamp
        if told:
            samples = renumber(told)
            _log.debug("say that they wait: %s", _Briefly(samples))
            self._note(samples)

    def _note(self, samples: Mapping[int, Sample]) -> None:
        self.waiting.update(samples)
        self._told.update(dict.fromkeys(samples, self.clock.now()))

    def _judge(self, gone: frozenset[int], failures: Mapping[int, str]) -> Case | None:
        """Return a case that is proved; note one that is suspected."""
        suspects = self.waiting.keys() | gone
        first = self._sample(suspects, gone)
        self._update(first)
        verdict = _judge(first)
        _log.debug("ended %s, %s: %s", sorted(gone), tell(verdict), _Briefly(first.samples))
        if not verdict.suspected:
            self._refute(first)
            return None
        # Look again, and at all ranks: others may wait by now.
        everyone = range(self.cluster.size)
        first = self._sample(everyone, gone)
        ran = dict.fromkeys(everyone, 0)  # how many times in a row a rank was seen to run
        for _ in range(CONFIRM_TIMES):
            self.clock.sleep(times.CONFIRM.seconds())
            second = self._sample(everyone, gone)
            # Who has run in between can go on, whatever it looks like now. An idle one provided
            # by now what it ever will; another client may drive one that is not.
            same = {
                r: replace(s, still=s.still and r in first.samples and first.samples[r].still)
                for r, s in second.samples.items()
                if (r in second.gone and s.state == "idle")
                or (r in first.samples and first.samples[r].stamp == s.stamp)
            }
            verdict = _judge(replace(second, samples=same))
            _log.debug(
                "after %g s, %s: %s",
                times.CONFIRM.seconds(),
                tell(verdict),
                _Briefly(second.samples),
            )
            for rank in everyone:
                ran[rank] = ran[rank] + 1 if _has_run(rank, first, second) else 0
            if not verdict.suspected or not _undecided(second, verdict.suspected, ran):
                break
            first = second
        fates = self._fates(gone, failures)
        if verdict.proved:
            case = Case(second, verdict.proved, fates)
            _log.info("declares a deadlock: %s", message.headline(case))
            return case
        self._suspect(Case(second, verdict.suspected, fates, verdict.doubts))
        return None

    def _suspect(self, case: Case) -> None:
        """Note a case that is not proved, or that there is none."""
        if not case.stuck:
            self._refute(case.situation)
            return
        self._misses = 0
        before = self.suspicion
        if before is None or not before.case.stuck & case.stuck:
            _log.info(
                "suspects a deadlock: %s (%s)", message.headline(case), "; ".join(case.doubts)
            )
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

    def _sample(self, ranks: Iterable[int], gone: frozenset[int]) -> Situation:
        """Ask some ranks what they wait for and what they have provided."""
        dead = frozenset(self.cluster.deaths)
        wanted = sorted(frozenset(ranks) - dead)
        # Before and after: what is over by then may have come after a rank has answered, and what
        # has given a rank work may be over itself.
        before = self.outside()
        samples = self.sample(wanted)
        outside = tuple(dict.fromkeys((*before, *self.outside())))
        gone -= frozenset(self.cluster.busy_ranks())
        return Situation(
            self.cluster.size,
            samples,
            gone,
            dead,
            not_asked=gone - frozenset(self.asked),
            outside=outside,
        )

    def _update(self, situation: Situation) -> None:
        """Forget the waits of ranks that have run since: they tell by themselves when they
        wait again. One that has not is only awake by chance, and one that gave no answer (its
        host may be out of reach for a moment) would not tell the same wait again."""
        for rank, old in list(self.waiting.items()):
            new = situation.samples.get(rank)
            if new is not None and new.wait is not None:
                self._note({rank: new})
            elif rank in situation.dead or (new is not None and new.stamp != old.stamp):
                del self.waiting[rank]

    def _fates(self, gone: frozenset[int], failures: Mapping[int, str]) -> dict[int, Fate]:
        fates = {}
        for rank in gone:
            if rank in self.cluster.deaths:
                fates[rank] = Fate("died", code=self.cluster.deaths[rank])
            elif rank not in self.asked:
                fates[rank] = NOT_ASKED
            elif rank in failures:
                fates[rank] = Fate("raised", failures[rank])
            else:
                fates[rank] = ENDED
        return fates


def _judge(situation: Situation) -> Verdict:
    """Judge a situation, and write down all that the verdict rests on."""
    _log.debug("%s%s", MARK, Written(situation))
    return judge(situation)


class _Briefly:
    """Samples in short, put into words only if a log wants them."""

    def __init__(self, samples: Mapping[int, Sample]) -> None:
        self.samples = samples

    def __str__(self) -> str:
        lines = []
        for rank, s in sorted(self.samples.items()):
            what = f"waits in {message.describe(s.wait, s.entry)}" if s.wait else s.state
            where = f" at {s.wait.where}" if s.wait and s.wait.where else ""
            still = ", still" if s.still else ""
            others = "".join(f", {about(_issuer(i), rank)}" for i in s.issuers)
            others += "".join(f", blind: {doubt}" for doubt in s.doubts)
            stamp = ".".join(map(str, s.stamp))
            lines.append(f"rank {rank} {what}{where}{still}, stamp {stamp}{others}")
        return "; ".join(lines) or "no answer"


def _issuer(issuer: Issuer) -> str:
    waits = f" waits in {message.describe(issuer.wait)}" if issuer.wait else ""
    return f"[{issuer.name}{waits}]"


def _has_run(rank: int, first: Situation, second: Situation) -> bool:
    """Tell whether a rank's main thread has run between two looks."""
    stamps = [s.samples[rank].stamp[:1] for s in (first, second) if rank in s.samples]
    return len(stamps) == 2 and stamps[0] != stamps[1] and all(stamps)


def _undecided(situation: Situation, stuck: frozenset[int], ran: Mapping[int, int]) -> bool:
    """Tell whether some rank may turn out to be stuck too.

    Not one that is gone, that stands still without waiting for another rank, or that runs on.
    """
    for rank, now in situation.samples.items():
        stands = now.state == "idle"
        if rank not in situation.gone | stuck and not stands and ran[rank] < 2:
            return True
    return False
