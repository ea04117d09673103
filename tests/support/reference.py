"""Work out by hand how a program of ``programs`` ends.

``predict`` is the reference: it runs a program step by step, in its own time and on no process,
and says which ranks end, which wait forever and at which operation, what each has computed by
then, and which verdict is right. It knows nothing of labkit.

Two verdicts are right where ranks wait forever. It is *proved* that some of them do if nobody is
left who could provide what they wait for. It is *suspected* of those for whom only a thread that
ticks or sleeps could: from outside nobody sees that it never will.

Three things are not for it to say, since they depend on how gloo works inside, or on a clock:

- A broadcast that some member never joins: each of the others may or may not be through with it.
  Two runs, one hopeful and one not, give bounds; more of them draw it for each rank.
- Ranks that call a broadcast under one number with something else, or with another source: a
  receiver takes what arrives. Such a program is called loose.
- A call with a time limit that is met close to that limit, or a group in which one has run out.
  Such a program is loose too.

Any other calls under one number that are not the same collective wait forever, all of them:
gloo keeps the messages of different collectives apart.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from .programs import COLLECTIVES, LATER, MAIN, MESSAGES, Op, Program

#: Seconds by which a rank may be late on a busy machine.
MARGIN = 1.0
#: Runs in which it is drawn who is through with a broadcast.
DRAWS = 32


@dataclass(frozen=True)
class End:
    """How one thread ends: "ended", "raised", "waits" or "ticks", the last two at an operation."""

    how: str
    got: tuple[object, ...]  #: the results that it has by then
    index: int = -1


@dataclass(frozen=True)
class Stage:
    """What is so from some moment on, until a sleep or a time limit is over."""

    time: float
    proved: dict[int, int]  #: ranks that wait forever, whatever comes: at which operation
    suspected: dict[int, int]  #: also those for whom only a thread could come that may never
    raised: tuple[int, ...]  #: ranks that have raised an error by then


@dataclass(frozen=True)
class Run:
    """How a program ends, if broadcasts behave in one way."""

    ends: tuple[End, ...]  #: of the main threads
    threads: dict[int, End]  #: of the others, by number; only those that were started
    stages: tuple[Stage, ...]
    loose: bool

    @property
    def stuck(self) -> dict[int, int]:
        """The ranks whose main thread waits forever, with the operation at which."""
        return {rank: end.index for rank, end in enumerate(self.ends) if end.how == "waits"}

    @property
    def raised(self) -> tuple[int, ...]:
        """The ranks that have raised an error, in the end."""
        return self.stages[-1].raised

    @property
    def verdict(self) -> str:
        """ "ended", "proved" (some are, at the latest in the end) or "suspected"."""
        last = self.stages[-1]
        return "proved" if last.proved else "suspected" if last.suspected else "ended"

    @property
    def suspicion(self) -> float:
        """Longest time for which ranks are suspected that go on all the same, in seconds."""
        longest, since = 0.0, None
        for stage in self.stages:
            if stage.proved:
                break
            if stage.suspected and since is None:
                since = stage.time
            elif not stage.suspected and since is not None:
                longest, since = max(longest, stage.time - since), None
        else:
            return longest
        return longest if since is None else max(longest, stage.time - since)


@dataclass(frozen=True)
class Prediction:
    """How a program ends: exactly if ``hopeful`` and ``fearful`` agree and it is not loose."""

    hopeful: Run
    fearful: Run
    others: tuple[Run, ...] = ()  #: in another order of threads, or in between these two

    @property
    def loose(self) -> bool:
        return self.hopeful.loose or self.fearful.loose

    @property
    def exact(self) -> bool:
        a, b = self.hopeful, self.fearful
        last = [(run.stages[-1].proved, run.stages[-1].suspected) for run in (a, b)]
        same = (a.ends, a.threads) == (b.ends, b.threads) and last[0] == last[1]
        return same and not self.loose

    @property
    def stages(self) -> list[Stage]:
        runs = (self.hopeful, self.fearful, *self.others)
        return [stage for run in runs for stage in run.stages]

    @property
    def suspicion(self) -> float:
        return max(run.suspicion for run in (self.hopeful, self.fearful, *self.others))


def predict(program: Program) -> Prediction:
    """Return how a program ends on gloo."""
    found = Prediction(
        Simulation(program, hopeful=True).result(), Simulation(program, hopeful=False).result()
    )
    if found.exact or found.loose:
        return found
    drawn = (Simulation(program, hopeful=random.Random(seed)) for seed in range(DRAWS))
    return replace(found, others=tuple(simulation.result() for simulation in drawn))


@dataclass
class Strand:
    """A thread on its way through its operations."""

    rank: int
    number: int
    ops: tuple[Op, ...]
    how: str = ""  #: "", "unstarted", "ended" or "raised"
    index: int = 0
    entered: bool = False  #: the operation at index has been issued
    until: float = float("inf")  #: when its sleep is over, or its time is up
    since: float = 0.0  #: when its operation was issued
    raises: bool = False  #: has raised an error, and still waits for what it has begun
    got: list[object] = field(default_factory=list)
    #: name of a started operation -> the same, and its number (of its collective or message)
    started: dict[int, tuple[Op, int]] = field(default_factory=dict)

    @property
    def op(self) -> Op | None:
        """What it is at, None if it is not on its way."""
        return None if self.how or self.index == len(self.ops) else self.ops[self.index]


class Simulation:
    """One run: every thread goes on as far as it can, until none can.

    ``hopeful``: ranks are through with a broadcast that some member never joins; it is drawn for
    each rank and broadcast if that is a source of chance.
    """

    def __init__(self, program: Program, *, hopeful: bool | random.Random) -> None:
        self.program, self.hopeful = program, hopeful
        self.now = 0.0
        self.strands = {
            (rank, number): Strand(
                rank, number, program.ops(rank, number), "" if number == MAIN else "unstarted"
            )
            for rank, number in program.strands()
        }
        #: (group, number) -> rank -> its call
        self.calls: dict[tuple[str, int], dict[int, Op]] = {}
        self.counts: dict[tuple[str, int], int] = {}  # (group, rank) -> calls so far
        #: (group, source, destination, tag) -> operations posted, in order
        self.sent: dict[tuple[str, int, int, int], list[Op]] = {}
        self.taken: dict[tuple[str, int, int, int], list[Op]] = {}
        #: (members, groups that a member has made before) -> ranks that have come
        self.made: dict[tuple[tuple[int, ...], int], set[int]] = {}
        self.makings = [0] * program.size  # by rank
        #: (rank, name in the program) -> name that torch gives to a group with local
        #: synchronisation: by its members and by how many this rank has made before
        self.torch_names: dict[tuple[int, str], str] = {}
        self.broken: dict[str, float] = {}  # groups in which a time was up -> first when
        self.racy = False
        self._hopes: dict[tuple[int, str, int], bool] = {}  # by rank, group and number

    def result(self) -> Run:
        stages: list[Stage] = []
        while True:
            while any(self.step(strand) for strand in self.turns()):
                pass
            stages.append(self._stage())
            self.now = min(s.until for s in self.strands.values())
            if self.now == float("inf"):
                break
        mains = tuple(self._end(rank, MAIN) for rank in range(self.program.size))
        threads = {
            number: self._end(rank, number)
            for (rank, number), strand in self.strands.items()
            if number != MAIN and strand.how != "unstarted"
        }
        return Run(mains, threads, tuple(stages), self.racy or self._meets_a_broadcast())

    def turns(self) -> list[Strand]:
        """List the threads in the order in which they may go on."""
        return list(self.strands.values())

    def _end(self, rank: int, number: int) -> End:
        strand = self.strands[rank, number]
        got = tuple(strand.got)
        if strand.how:
            return End(strand.how, got)
        ticks = strand.op is not None and strand.op.kind == "tick"
        return End("ticks" if ticks else "waits", got, strand.index)

    def _meets_a_broadcast(self) -> bool:
        """Return whether a broadcast met something else."""
        return any(
            len(kinds) > 1 and any(kind == "broadcast" for kind, _ in kinds)
            for kinds in map(_kinds, self.calls.values())
        )

    # -- going on -------------------------------------------------------------------------------

    def step(self, strand: Strand) -> bool:
        """Make a thread go on by one operation; return whether it did anything."""
        if strand.how:
            return False
        op, moved = strand.op, not strand.entered
        if op is None:
            strand.how = "ended"
            return True
        if op.kind == "raise":
            strand.how = "raised" if strand.number == MAIN else "ended"
            strand.got += [] if strand.number == MAIN else ["ValueError"]
            return True
        if not strand.entered:
            strand.entered, strand.since = True, self.now
            self.issue(strand, op)
        late = bool(self.program.limit(op.group)) and self.now >= strand.until
        if late or self.is_through(strand, op):
            if late:
                strand.got.append("late")
                self.broken.setdefault(op.group, self.now)
            elif op.kind in (*COLLECTIVES, *MESSAGES, *LATER) and not op.begins:
                strand.got += self.outcome(*strand.started[op.name], rank=strand.rank)
                self._look_at_the_clock(strand, op)
            strand.index, strand.entered, strand.until = strand.index + 1, False, float("inf")
            return True
        return moved

    def _look_at_the_clock(self, strand: Strand, op: Op) -> None:
        """Record a call that was met so late that its time might have been up."""
        limit = self.program.limit(op.group)
        if limit and self.now - strand.since > limit - MARGIN:
            self.racy = True

    def issue(self, strand: Strand, op: Op) -> None:
        rank = strand.rank
        if op.kind == "compute":
            strand.until = self.now + op.seconds
        elif op.kind == "start":
            self.strands[rank, op.name].how = ""
        elif op.kind == "new":
            key = self.program.members(op.group), self.makings[rank]
            self.torch_names[rank, op.group] = str(key)
            self.makings[rank] += 1
            self.made.setdefault(key, set()).add(rank)
            strand.started[-1] = op, key[1]
        elif op.kind in COLLECTIVES:
            group = self.group(rank, op)
            number = self.counts[group, rank] = self.counts.get((group, rank), 0) + 1
            self.calls.setdefault((group, number), {})[rank] = op
            strand.started[op.name] = op, number
            if limit := self.program.limit(op.group):
                strand.until = self.now + limit
                self.racy = self.racy or op.group in self.broken
        elif op.kind in MESSAGES:
            posted = self.posted(op)[1].setdefault(self.channel(rank, op), [])
            posted.append(op)
            strand.started[op.name] = op, len(posted)

    def group(self, rank: int, op: Op) -> str:
        """Return torch's name for the group of an operation."""
        return self.torch_names.get((rank, op.group), op.group)

    def channel(self, rank: int, op: Op) -> tuple[str, int, int, int]:
        """Return what a message has in common with the one that it meets."""
        ends = (rank, op.peer) if op.kind in ("send", "isend") else (op.peer, rank)
        return (self.group(rank, op), *ends, op.tag)

    def posted(self, op: Op) -> tuple[dict, dict]:
        """Return what is posted on the other end of a message, and on this one."""
        sends = op.kind in ("send", "isend")
        return (self.taken, self.sent) if sends else (self.sent, self.taken)

    def is_through(self, strand: Strand, op: Op) -> bool:
        """Return whether a thread can go on from the operation that it is at."""
        match op.kind:
            case "compute":
                return self.now >= strand.until
            case "tick":
                return False
            case "join":
                return self.strands[strand.rank, op.name].how == "ended"
            case "start" | "look" | "async_all_reduce" | "isend" | "irecv":
                return True
        missing, conflict = self.needs(strand, op)
        return not missing and not conflict

    def needs(self, strand: Strand, op: Op) -> tuple[set[int], bool]:
        """Return the ranks that have yet to come, and whether calls exclude one another."""
        if op.kind == "new":
            members = self.program.members(op.group)
            number = strand.started[-1][1]
            return set(members) - self.made[members, number], self._is_misnamed(members, number)
        return self.needs_of(strand.rank, *strand.started[op.name])

    def needs_of(self, rank: int, op: Op, number: int) -> tuple[set[int], bool]:
        """Return the same for a collective or a message of a rank that has been issued."""
        if op.kind in MESSAGES:
            come = len(self.posted(op)[0].get(self.channel(rank, op), [])) >= number
            return (set() if come else {op.peer}), False
        calls = self.calls[self.group(rank, op), number]
        missing = set(self.program.members(op.group)) - calls.keys()
        # The source waits for some of the receivers, and a receiver may have to pass it on.
        pair = len(self.program.members(op.group)) == 2
        if op.kind == "broadcast" and not pair and self._hopes_for(rank, op.group, number):
            missing &= {op.root}
        return missing, len(_kinds(calls)) > 1

    def _hopes_for(self, rank: int, group: str, number: int) -> bool:
        """Return whether a rank is through with a broadcast that only its source has joined."""
        if isinstance(self.hopeful, bool):
            return self.hopeful
        return self._hopes.setdefault((rank, group, number), self.hopeful.random() < 0.5)

    def _is_misnamed(self, members: tuple[int, ...], number: int) -> bool:
        """Return whether a member that has yet to come will have another name for the group."""
        come = self.made[members, number]
        return any(self.makings[rank] > number for rank in set(members) - come)

    def outcome(self, op: Op, number: int, *, rank: int) -> list[object]:
        """Return what an operation that is done adds to ``got``."""
        if op.kind in ("recv", "irecv"):
            return [self.sent[self.channel(rank, op)][number - 1].value]
        if op.kind in ("send", "isend", "barrier"):
            return []
        calls = self.calls[self.group(rank, op), number]
        if op.kind == "broadcast":
            return [calls[op.root].value]
        values = [calls[r].value for r in self.program.members(op.group)]
        return [values] if op.kind == "all_gather" else [sum(values)]

    # -- who can still provide ------------------------------------------------------------------

    def _stage(self) -> Stage:
        raised = [s.rank for s in self.strands.values() if s.how == "raised" or s.raises]
        proved, suspected = self._stuck(threads_may=True), self._stuck(threads_may=False)
        return Stage(self.now, proved, suspected, tuple(raised))

    def _stuck(self, *, threads_may: bool) -> dict[int, int]:
        """Return the ranks whose main thread cannot go on: the least fixed point.

        ``threads_may``: a thread that ticks or sleeps may provide whatever its rank can.
        """
        able: set[tuple[int, int]] = set()  # threads that can go on
        while True:
            ranks = {rank for rank, _ in able}
            new = {
                key
                for key, strand in self.strands.items()
                if key not in able and self.may_go_on(strand, able, ranks, threads_may)
            }
            if not new:
                break
            able |= new
        mains = [s for s in self.strands.values() if s.number == MAIN and not s.how]
        return {s.rank: s.index for s in mains if (s.rank, MAIN) not in able}

    def may_go_on(
        self, strand: Strand, able: set[tuple[int, int]], ranks: set[int], threads_may: bool
    ) -> bool:
        op = strand.op
        if op is None:
            return False  # not started, or over
        if op.kind in ("compute", "tick"):
            return strand.number == MAIN or threads_may
        if op.kind == "join":
            # From outside nobody sees for which of its threads a rank waits.
            return any(key[0] == strand.rank and key[1] != MAIN for key in able)
        if strand.until < float("inf"):
            return True  # its time will be up
        missing, conflict = self.needs(strand, op)
        return not conflict and missing <= ranks


def _kinds(calls: dict[int, Op]) -> set[tuple[str, int]]:
    return {(op.kind.removeprefix("async_"), op.root) for op in calls.values()}
