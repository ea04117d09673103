"""Find the ranks that can never go on, and those that cannot as far as can be seen.

The model is a wait-for graph of AND and OR (Chandy, Misra and Haas, 1983): a rank is a set of
issuers (its main thread, and whatever else of it may issue calls), and a wait needs all or some
of other ranks to provide something. What a rank has provided (collectives issued, messages
posted) only grows. A rank can provide more if one of its issuers can go on; an issuer can go on if
nothing holds it, or if everything that it waits for has been provided or can still be. What that
leaves, as the least fixed point, blocks forever: not because a time is over but because nobody is
left who could come. ``docs/THEORY.md`` says why.

There are two readings of what labkit cannot see into (a thread of the user's, an agent of RPC,
another process in the world). In one it may do anything: what is stuck then is *proved*. In the
other it does nothing: what is stuck only then is *suspected*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..wire.samples import Issuer, Sample, Wait
from .needs import Need, Situation, needs


@dataclass(frozen=True)
class Verdict:
    """Which ranks block forever: for certain, and by all that can be seen."""

    proved: frozenset[int] = frozenset()
    suspected: frozenset[int] = frozenset()  #: these and the proved ones
    doubts: tuple[str, ...] = ()  #: why the others are not proved


def judge(situation: Situation) -> Verdict:
    """Find the ranks that block forever, in both readings of what cannot be seen."""
    suspected = _Reading(situation, trusting=True)
    if not suspected.stuck():
        return Verdict()
    proved = _Reading(situation, trusting=False)
    blindness = _blindness(situation)
    doubts = dict.fromkeys([*proved.doubts(suspected.held), *blindness])
    found = frozenset() if blindness else frozenset(proved.stuck())
    return Verdict(found, frozenset(suspected.stuck()), tuple(doubts))


def _blindness(situation: Situation) -> list[str]:
    """Return what cannot be seen at all on some rank: nothing is proved with a blind eye."""
    return list(
        dict.fromkeys(doubt for _, s in sorted(situation.samples.items()) for doubt in s.doubts)
    )


#: Why a wait for a member that is no rank of the lab is not proved.
OUTSIDER = "a process that is no rank of this lab is in the group"
#: An issuer: its rank, and its place among the rank's issuers; -1 is the main thread.
Node = tuple[int, int]


@dataclass
class _Reading:
    """The least fixed point in one reading: who is held by a wait that nobody can end."""

    situation: Situation
    trusting: bool  #: what cannot be seen into does nothing
    held: dict[Node, Wait] = field(init=False)  #: and by what
    free: dict[int, list[str]] = field(init=False)  #: rank -> its issuers that can go on: doubts

    def __post_init__(self) -> None:
        self.held, self.free = {}, {}
        for rank, sample in self.situation.samples.items():
            if rank in self.situation.dead:
                continue
            own = self.free.setdefault(rank, [])
            for node, wait, doubt in self._issuers(rank, sample):
                if wait is not None:
                    self.held[node] = wait
                elif not (doubt and self.trusting):
                    own.append(doubt)
        while True:
            over = [node for node, wait in self.held.items() if self._may_go_on(node, wait)]
            if not over:
                return
            for node in over:
                del self.held[node]
                self.free[node[0]].append("")

    def _issuers(self, rank: int, sample: Sample) -> Iterator[tuple[Node, Wait | None, str]]:
        """Yield each issuer of a rank: what it waits for, and why it cannot be seen into."""
        idle = sample.state == "idle"
        gone = rank in self.situation.gone
        if not idle:
            yield (rank, -1), sample.wait, ""
        elif not gone:
            yield (rank, -1), None, ""  # its cell has not begun, or its reply is on the way
        else:
            for doubt in self.situation.outside:
                yield (rank, -1), None, doubt
        for place, issuer in enumerate(sample.issuers):
            yield (rank, place), *_held_by(issuer, sample, idle)

    def able(self, rank: int) -> bool:
        """Return whether a rank can provide more than it has."""
        if rank in self.situation.dead:
            return False
        if self.situation.is_outsider(rank) and self.trusting and self._knows_all():
            return False
        return rank not in self.free or bool(self.free[rank])

    def _knows_all(self) -> bool:
        """Return whether every rank of the lab has answered: a member that is none of them is no
        rank of the lab."""
        s = self.situation
        return all(r in s.samples or r in s.dead for r in range(s.size))

    def stuck(self) -> set[int]:
        """Return the ranks whose main thread blocks forever."""
        return {rank for rank, place in self.held if place < 0}

    def _may_go_on(self, node: Node, wait: Wait) -> bool:
        if wait.doubt and not self.trusting:
            return True
        wanted = needs(self.situation, node[0], wait)
        possible = (self._possible(need, node[0]) for need in wanted)
        if wait.kind == "device" and not wait.partial:
            return all(possible)
        return not wanted or any(possible)

    def _possible(self, need: Need, rank: int) -> bool:
        if need.conflict:
            return False
        if need.doubt and not self.trusting:
            return True
        if need.missing:
            able = sum(map(self.able, need.missing))
            if able >= (len(need.missing) if need.enough is None else need.enough):
                return True
            if not need.uncertain:
                return False
        elif not need.doubt and not need.crossed:
            return True  # everybody has come, with calls that fit: however slow the way is
        # It is on its way, or never arrives: that shows when nothing is on its way anywhere. What
        # has come is in this rank's own queues until somebody reads it.
        return not all(map(self.situation.is_still, need.partners | {rank}))

    def doubts(self, held: Mapping[Node, Wait]) -> list[str]:
        """Return what lets issuers go on here that are ``held`` in the trusting reading."""
        said: dict[str, None] = {}
        for node, wait in sorted(held.items(), key=lambda item: item[0]):
            if node in self.held:
                continue
            if wait.doubt:
                said[about(wait.doubt, node[0])] = None
            for need in needs(self.situation, node[0], wait):
                if need.doubt:
                    said[about(need.doubt, node[0])] = None
                for rank in sorted(need.missing):
                    if self.situation.is_outsider(rank) and not need.doubt:
                        said[OUTSIDER] = None
                    for doubt in self.free.get(rank, ()):
                        if doubt:
                            said[about(doubt, rank)] = None
        return list(said)


def about(sentence: str, rank: int) -> str:
    """Put a rank into a sentence about it. A thread's name in it may have braces of its own."""
    return sentence.replace("{rank}", str(rank))


def _held_by(issuer: Issuer, sample: Sample, idle: bool) -> tuple[Wait | None, str]:
    """Return what an issuer waits for, and why it cannot be seen into if it does not."""
    wait = issuer.wait
    awaits = sample.wait is not None and sample.wait.kind == "thread"
    if issuer.when_idle and not idle and not awaits:
        wait = sample.wait  # it goes on after the main thread
    return wait, "" if wait is not None or issuer.ends else issuer.name
