"""Work out by hand how a program of ``programs`` ends where calls return before they are done.

The same as ``reference``, for NCCL's semantics as ``fake_nccl`` gives them to gloo:

- A collective, a send and a receive return at once, and so does ``wait()``. A value is waited for
  where the program looks at it; a barrier waits by itself.
- The collectives of a group are done one after the other.
- What the program has waited for holds back later calls of its rank, as a stream would: all but
  the next collective of the same group; a send holds back nothing, there are buffers for it.
- A cell ends when all that its rank has begun is done, also one that has raised an error.

The threads of a rank share its stream: which of them is first can decide how a program ends. It is
run with the threads in different orders, and loose if that makes a difference. In each order the
first thread that can go on does, until it cannot: a thread can then be many calls ahead of another
one, which is what it takes (a thread drawn anew for each step is never far ahead). As in
"probabilistic concurrency testing" (Burckhardt and others, ASPLOS 2010), the order changes now and
then.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .programs import COLLECTIVES, LATER, MAIN, MESSAGES, STARTS, Op, Program
from .reference import DRAWS, Prediction, Simulation, Strand

#: Orders of threads that are tried, how often one changes at most, and among how many first steps.
ORDERS, CHANGES, STEPS = 32, 2, 60
#: Seconds that a rank may compute and still be first on a busy machine.
SHORT = 0.1


def predict_nccl(program: Program) -> Prediction:
    """Return how a program ends with the semantics of NCCL; it must not have time limits."""
    assert not any(group.limit for group in program.groups.values())
    found = [_predict(program, seed) for seed in range(ORDERS if program.threads else 1)]
    first = found[0]
    runs = [run for prediction in found for run in (prediction.hopeful, prediction.fearful)]
    exact = [prediction.exact for prediction in found]
    same = all((run.ends, run.threads) == (runs[0].ends, runs[0].threads) for run in runs)
    if not any(exact):
        drawn = (_Manners(program, seed, hopeful=random.Random(seed)) for seed in range(DRAWS))
        return replace(first, others=(*runs, *(simulation.result() for simulation in drawn)))
    if all(exact) and same:
        return replace(first, others=tuple(runs))
    return replace(first, hopeful=replace(first.hopeful, loose=True))


def _predict(program: Program, seed: int) -> Prediction:
    return Prediction(
        _Manners(program, seed, hopeful=True).result(),
        _Manners(program, seed, hopeful=False).result(),
    )


@dataclass(eq=False)
class _Given:
    """A call that has been issued."""

    strand: Strand
    op: Op
    number: int  #: of its collective or message
    ordered: bool = False  #: the program has waited for it

    def holds_back(self, op: Op) -> bool:
        """Return whether a later call of its rank has to wait for it."""
        if self.op.kind in COLLECTIVES and op.kind in COLLECTIVES and self.op.group == op.group:
            return False
        return self.ordered and self.op.kind not in ("send", "isend")


class _Manners(Simulation):
    """One run in which calls return at once."""

    def __init__(self, program: Program, seed: int, *, hopeful: bool | random.Random) -> None:
        super().__init__(program, hopeful=hopeful)
        self._chance = random.Random(seed)
        strands = list(self.strands)
        self._order = self._chance.sample(strands, len(strands))
        changes = self._chance.randint(0, CHANGES)
        self._changes = set(self._chance.sample(range(STEPS), changes))
        self._steps = 0
        self.given: list[list[_Given]] = [[] for _ in range(program.size)]  # by rank
        #: What a thread waits for at the operation that it is at.
        self.waits: dict[int, list[_Given]] = {}

    def turns(self) -> list[Strand]:
        if self._steps in self._changes:
            place = self._chance.randrange(len(self._order))
            self._order.append(self._order.pop(place))
        self._steps += 1
        return [self.strands[key] for key in self._order]

    def issue(self, strand: Strand, op: Op) -> None:
        super().issue(strand, op)
        if op.kind == "compute" and op.seconds < SHORT and self._chance.random() < 0.5:
            strand.until = self.now

    def step(self, strand: Strand) -> bool:
        op = strand.op
        if strand.how or (op is not None and op.kind not in (*COLLECTIVES, *MESSAGES, *LATER)):
            if op is not None and op.kind == "raise" and strand.number == MAIN:
                strand.index, strand.raises = len(strand.ops), True
                return True
            return super().step(strand)
        if self._blockers(strand):
            return False
        if op is None:
            strand.how = "raised" if strand.raises else "ended"
        elif not strand.entered:
            strand.entered = True
            self.waits[id(strand)] = self._enter(strand, op)
        else:
            if not op.begins:
                strand.got += self.outcome(*strand.started[op.name], rank=strand.rank)
            strand.index, strand.entered = strand.index + 1, False
        return True

    def _enter(self, strand: Strand, op: Op) -> list[_Given]:
        """Issue a call, or wait for one; return what the program then waits for."""
        mine = self.given[strand.rank]
        if op.kind in LATER:
            first = next(g for g in reversed(mine) if g.strand is strand and g.op.name == op.name)
        else:
            self.issue(strand, op)
            first = _Given(strand, *strand.started[op.name])
            mine.append(first)
        first.ordered = op.kind not in STARTS
        if op.kind == "barrier":
            return [given for given in mine if given.ordered]
        looks = first.ordered and not op.quiet and first.op.kind not in ("send", "isend")
        return [first] if looks else []

    def _blockers(self, strand: Strand) -> list[_Given]:
        """Return what a thread waits for: where it is, or before it can issue its next call."""
        op, mine = strand.op, self.given[strand.rank]
        if op is None:
            found: Iterable[_Given] = mine if strand.number == MAIN else []
        elif strand.entered:
            found = self.waits[id(strand)]
        elif op.kind in LATER:
            found = []
        else:
            found = [given for given in mine if given.holds_back(op)]
        return [given for given in found if self._lacks(given) != (set(), False)]

    def _lacks(self, given: _Given) -> tuple[set[int], bool]:
        """Return the ranks that have yet to come, and whether calls exclude one another."""
        strand, op = given.strand, given.op
        if op.kind in MESSAGES:
            return self.needs_of(strand.rank, op, given.number)
        missing: set[int] = set()
        conflict = False
        for number in range(1, given.number + 1):  # one after the other
            before = self.calls[self.group(strand.rank, op), number][strand.rank]
            more, excluded = self.needs_of(strand.rank, before, number)
            missing, conflict = missing | more, conflict or excluded
        return missing, conflict

    def may_go_on(
        self, strand: Strand, able: set[tuple[int, int]], ranks: set[int], threads_may: bool
    ) -> bool:
        op = strand.op
        if strand.how or (op is not None and op.kind not in (*COLLECTIVES, *MESSAGES, *LATER)):
            return super().may_go_on(strand, able, ranks, threads_may)
        blockers = self._blockers(strand)
        if op is None and not blockers:
            return False  # over
        if op is None:
            return all(self._can_come(given, ranks) for given in blockers)
        # From outside nobody sees for what of its device a thread waits within a cell.
        given = self.given[strand.rank]
        return any(self._can_come(g, ranks) for g in given if self._lacks(g) != (set(), False))

    def _can_come(self, given: _Given, ranks: set[int]) -> bool:
        """Return whether ranks that can go on may still bring what a call lacks."""
        missing, conflict = self._lacks(given)
        return not conflict and missing <= ranks
