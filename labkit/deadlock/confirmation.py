"""Confirm a suspected deadlock: two samples of all ranks, one after the other, have to agree."""

from __future__ import annotations

from dataclasses import replace

from .needs import Situation
from .wait_graph import Verdict

#: How often it is sampled again while some rank neither runs nor stands still for certain, so that
#: the message has all that wait.
CONFIRM_TIMES = 6


class Confirmation:
    """What samples of all ranks agree in, from a first one on."""

    def __init__(self, first: Situation) -> None:
        self._last = first
        self._left = CONFIRM_TIMES
        self._ran = dict.fromkeys(range(first.size), 0)  # times in a row that a rank has run

    def agreed(self, second: Situation) -> Situation:
        """Return the next situation without what the one before it does not confirm.

        A rank that has run in between can go on, whatever it looks like now. An idle one has
        provided by now what it ever will; another client may drive one that is not.
        """
        first = self._last.samples
        same = {
            r: replace(s, still=s.still and r in first and first[r].still)
            for r, s in second.samples.items()
            if (r in second.gone and s.state == "idle")
            or (r in first and first[r].stamp == s.stamp)
        }
        return replace(second, samples=same)

    def is_final(self, second: Situation, verdict: Verdict) -> bool:
        """Take in the next situation; return whether the verdict on what was agreed stands, since
        no further rank may turn out to be stuck, or there were samples enough."""
        for rank in self._ran:
            self._ran[rank] = self._ran[rank] + 1 if self._has_run(rank, second) else 0
        self._last = second
        self._left -= 1
        return not self._left or not verdict.suspected or not self._undecided(verdict.suspected)

    def _has_run(self, rank: int, second: Situation) -> bool:
        """Return whether a rank's main thread has run since the sample before."""
        both = (self._last.samples, second.samples)
        stamps = [samples[rank].stamp[:1] for samples in both if rank in samples]
        return len(stamps) == 2 and stamps[0] != stamps[1] and all(stamps)

    def _undecided(self, stuck: frozenset[int]) -> bool:
        """Return whether some rank may be stuck too: one that is neither gone, nor stands still
        without waiting for another rank, nor runs on."""
        return any(
            rank not in self._last.gone | stuck and s.state != "idle" and self._ran[rank] < 2
            for rank, s in self._last.samples.items()
        )
