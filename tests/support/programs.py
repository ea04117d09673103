"""Draw small programs of collectives and messages, and work out by hand how each ends.

A program has a list of operations for each rank. ``correct`` draws one that cannot deadlock: its
operations come from events in one global order (a collective on all members of its group, a
message with both of its ends), and every rank meets the events in that order. ``faulty`` changes
one thing in a correct program.

``predict`` is the reference: it runs a program step by step, in no time and on no process, and
says which ranks end, which wait for ever and at which operation, and what each has computed by
then. It knows nothing of ``labkit.watch``. Two things are not for it to say, since they depend on
how gloo works inside:

- A broadcast that some member never joins: the others may or may not be through with it. Two
  runs, one hopeful and one not, give bounds.
- Ranks that call a broadcast under one number with something else, or with another source: a
  receiver takes what arrives. Such a program is called loose.

Any other calls under one number that are not the same collective wait for ever, all of them:
gloo keeps the messages of different collectives apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

WORLD = "world"
#: Every member brings data to, or waits for, every other one.
SYMMETRIC = ("all_reduce", "barrier", "all_gather")
COLLECTIVES = (*SYMMETRIC, "broadcast", "async_all_reduce")
MESSAGES = ("send", "recv", "isend", "irecv")
#: These go on at once, and have a "wait" later.
STARTS = ("async_all_reduce", "isend", "irecv")


@dataclass(frozen=True)
class Op:
    """One operation of one rank. ``peer`` and ``root`` are numbers in the world."""

    kind: str  #: of COLLECTIVES or MESSAGES, or "wait", "compute", "raise"
    name: int = 0  #: of its variables; a "wait" has that of what it waits for
    group: str = WORLD
    peer: int = -1
    tag: int = 0
    root: int = -1
    value: int = 0  #: what this rank brings
    seconds: float = 0.0  #: that a "compute" takes


@dataclass(frozen=True)
class Program:
    """What each rank does; ``groups`` has the members of the sub-groups."""

    ranks: tuple[tuple[Op, ...], ...]
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    fault: str = ""  #: what was changed

    @property
    def size(self) -> int:
        return len(self.ranks)

    def members(self, group: str) -> tuple[int, ...]:
        return tuple(range(self.size)) if group == WORLD else self.groups[group]

    def __repr__(self) -> str:
        return f"\n# {self.size} ranks; fault: {self.fault or 'none'}\n{write(self)[0]}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis prints it


# -- the code of a cell -------------------------------------------------------------------------


def write(program: Program) -> tuple[str, dict[tuple[int, int], int]]:
    """Return the cell of a program, and the line of each operation by rank and index."""
    lines = ["#px In[7]", "import time", "got = []"]
    for group, members in program.groups.items():
        lines.append(f"{group} = dist.new_group({list(members)})")
    places = {}
    for rank, ops in enumerate(program.ranks):
        lines.append(f"{'el' if rank else ''}if rank == {rank}:")
        for index, op in enumerate(ops):
            before, call, after = _statements(op, program, rank)
            lines += [f"    {line}" for line in before]
            lines.append(f"    {call}")
            places[rank, index] = len(lines)
            lines += [f"    {line}" for line in after]
        if not ops:
            lines.append("    pass")
    return "\n".join(lines) + "\n", places


def _statements(op: Op, program: Program, rank: int) -> tuple[list[str], str, list[str]]:
    """Return what comes before an operation's own line, that line, and what comes after."""
    x, work, out = f"x{op.name}", f"work{op.name}", f"out{op.name}"
    group = "" if op.group == WORLD else f", group={op.group}"
    tag = f", tag={op.tag}" if op.tag else ""
    tensor = f"{x} = torch.tensor([{op.value}])"
    note = f"got.append({x}.item())"
    match op.kind:
        case "compute":
            return [], f"time.sleep({op.seconds})", []
        case "raise":
            return [], "raise ValueError('planted')", []
        case "barrier":
            return [], f"dist.barrier({group.removeprefix(', ')})", []
        case "all_reduce":
            return [tensor], f"dist.all_reduce({x}{group})", [note]
        case "broadcast":
            return [tensor], f"dist.broadcast({x}, {op.root}{group})", [note]
        case "all_gather":
            size = len(program.members(op.group))
            empty = f"{out} = [torch.tensor([0]) for _ in range({size})]"
            call = f"dist.all_gather({out}, {x}{group})"
            return [tensor, empty], call, [f"got.append([y.item() for y in {out}])"]
        case "async_all_reduce":
            return [tensor], f"{work} = dist.all_reduce({x}, async_op=True{group})", []
        case "send":
            return [tensor], f"dist.send({x}, {op.peer}{group}{tag})", []
        case "recv":
            return [tensor], f"dist.recv({x}, {op.peer}{group}{tag})", [note]
        case "isend" | "irecv":
            return [tensor], f"{work} = dist.{op.kind}({x}, {op.peer}{group}{tag})", []
        case "wait":
            ops = program.ranks[rank]
            sent = any(o.kind == "isend" and o.name == op.name for o in ops)
            return [], f"{work}.wait()", [] if sent else [note]
    raise ValueError(op.kind)


# -- the reference ------------------------------------------------------------------------------


@dataclass(frozen=True)
class End:
    """How one rank ends: "ended", "raised" or "waits", the last at an operation."""

    how: str
    got: tuple[object, ...]  #: the results that it has by then
    index: int = -1


@dataclass(frozen=True)
class Prediction:
    """How a program ends: exactly if ``hopeful`` and ``fearful`` agree and it is not loose."""

    hopeful: tuple[End, ...]
    fearful: tuple[End, ...]
    loose: bool

    @property
    def exact(self) -> bool:
        return not self.loose and self.hopeful == self.fearful


def predict(program: Program) -> Prediction:
    """Say how a program ends."""
    hopeful, fearful = _Run(program, hopeful=True), _Run(program, hopeful=False)
    ends = hopeful.ends(), fearful.ends()
    return Prediction(*ends, loose=hopeful.loose() or fearful.loose())


def stuck(ends: tuple[End, ...]) -> dict[int, int]:
    """Return the ranks that wait for ever, with the operation at which."""
    return {rank: end.index for rank, end in enumerate(ends) if end.how == "waits"}


@dataclass
class _Rank:
    ops: tuple[Op, ...]
    index: int = 0
    entered: bool = False  #: the operation at index has been issued
    how: str = ""
    got: list[object] = field(default_factory=list)
    #: name of a started operation -> the same, and its number (of its collective or message)
    started: dict[int, tuple[Op, int]] = field(default_factory=dict)


class _Run:
    """One run: every rank goes on as far as it can, until none can."""

    def __init__(self, program: Program, *, hopeful: bool) -> None:
        self.program, self.hopeful = program, hopeful
        self.ranks = [_Rank(ops) for ops in program.ranks]
        #: (group, number) -> rank -> its call
        self.calls: dict[tuple[str, int], dict[int, Op]] = {}
        self.counts: dict[tuple[str, int], int] = {}  # (group, rank) -> calls so far
        #: (group, source, destination, tag) -> operations posted, in order
        self.sent: dict[tuple[str, int, int, int], list[Op]] = {}
        self.taken: dict[tuple[str, int, int, int], list[Op]] = {}

    def ends(self) -> tuple[End, ...]:
        while any(self._step(rank) for rank in range(self.program.size)):
            pass
        return tuple(
            End(r.how, tuple(r.got)) if r.how else End("waits", tuple(r.got), r.index)
            for r in self.ranks
        )

    def loose(self) -> bool:
        """Tell whether a broadcast met something else."""
        return any(
            len(kinds) > 1 and any(kind == "broadcast" for kind, _ in kinds)
            for kinds in map(_kinds, self.calls.values())
        )

    def _step(self, rank: int) -> bool:
        """Let a rank go on by one operation; tell whether it did anything."""
        me = self.ranks[rank]
        if me.how:
            return False
        if me.index == len(me.ops):
            me.how = "ended"
            return True
        op, moved = me.ops[me.index], not me.entered
        if op.kind == "raise":
            me.how = "raised"
            return True
        if not me.entered:
            me.entered = True
            self._issue(rank, op)
        if op.kind in ("compute", *STARTS):
            done = True
        else:
            done = self._is_done(rank, *me.started[op.name])
        if done:
            if op.kind not in ("compute", *STARTS):
                me.got += self._result(rank, *me.started[op.name])
            me.index, me.entered, moved = me.index + 1, False, True
        return moved

    def _issue(self, rank: int, op: Op) -> None:
        started = self.ranks[rank].started
        if op.kind in COLLECTIVES:
            number = self.counts[op.group, rank] = self.counts.get((op.group, rank), 0) + 1
            self.calls.setdefault((op.group, number), {})[rank] = op
            started[op.name] = op, number
        elif op.kind in MESSAGES:
            posted = self._posted(op)[1].setdefault(_channel(rank, op), [])
            posted.append(op)
            started[op.name] = op, len(posted)

    def _posted(self, op: Op) -> tuple[dict, dict]:
        """Return what is posted on the other end of a message, and on this one."""
        sends = op.kind in ("send", "isend")
        return (self.taken, self.sent) if sends else (self.sent, self.taken)

    def _is_done(self, rank: int, op: Op, number: int) -> bool:
        if op.kind in MESSAGES:
            return len(self._posted(op)[0].get(_channel(rank, op), [])) >= number
        calls = self.calls[op.group, number]
        if len(_kinds(calls)) > 1:
            return False
        if len(calls) == len(self.program.members(op.group)):
            return True
        # The source waits for some of the receivers, and a receiver may have to pass it on.
        pair = len(self.program.members(op.group)) == 2
        return op.kind == "broadcast" and self.hopeful and op.root in calls and not pair

    def _result(self, rank: int, op: Op, number: int) -> list[object]:
        """Return what an operation that is done adds to ``got``."""
        if op.kind in ("recv", "irecv"):
            return [self.sent[_channel(rank, op)][number - 1].value]
        if op.kind in ("send", "isend", "barrier"):
            return []
        calls = self.calls[op.group, number]
        if op.kind == "broadcast":
            return [calls[op.root].value]
        values = [calls[r].value for r in self.program.members(op.group)]
        return [values] if op.kind == "all_gather" else [sum(values)]


def _kinds(calls: dict[int, Op]) -> set[tuple[str, int]]:
    return {(op.kind.removeprefix("async_"), op.root) for op in calls.values()}


def _channel(rank: int, op: Op) -> tuple[str, int, int, int]:
    ends = (rank, op.peer) if op.kind in ("send", "isend") else (op.peer, rank)
    return (op.group, *ends, op.tag)


# -- correct programs ---------------------------------------------------------------------------

#: Milliseconds that a rank computes.
COMPUTE = (0, 5, 20)
TAGS = (0, 1, 2)


@st.composite
def correct(draw: st.DrawFn, size: int) -> Program:
    """Draw a program of ``size`` ranks in which nobody waits in vain."""
    everyone = range(size)
    subset = st.sets(st.sampled_from(everyone), min_size=2).map(lambda s: tuple(sorted(s)))
    subsets = draw(st.lists(subset, min_size=1, max_size=2))
    groups = dict(zip(("first", "second"), subsets, strict=False))
    shapes = {WORLD: tuple(everyone), **groups}
    ranks: list[list[Op]] = [[] for _ in everyone]
    due: list[list[tuple[int, Op]]] = [[] for _ in everyone]  # by rank: event, wait

    count = draw(st.integers(3, 10))
    for event in range(count):
        for rank in everyone:
            ranks[rank] += [wait for when, wait in due[rank] if when <= event]
            due[rank] = [(when, wait) for when, wait in due[rank] if when > event]
        for rank, op in _event(draw, event, shapes).items():
            ranks[rank].append(op)
            if op.kind in STARTS:
                later = draw(st.integers(1, 4))
                due[rank].append((event + later, Op("wait", event)))
    for rank in everyone:
        ranks[rank] += [wait for _, wait in due[rank]]
    return Program(tuple(map(tuple, ranks)), groups)


def _event(draw: st.DrawFn, event: int, shapes: dict[str, tuple[int, ...]]) -> dict[int, Op]:
    """Draw what happens next: a collective, a message, or a rank that computes."""
    group = draw(st.sampled_from(list(shapes)))
    members = shapes[group]
    # Half of them are messages and asynchronous: these can go wrong in more ways.
    kind = draw(
        st.sampled_from([*SYMMETRIC, "all_reduce", "broadcast", *["message"] * 4, "compute"])
    )
    if kind == "compute":
        rank = draw(st.sampled_from(members))
        return {rank: Op(kind, event, seconds=draw(st.sampled_from(COMPUTE)) / 1000)}
    if kind == "message":
        source, peer = draw(st.permutations(members))[:2]
        tag = draw(st.sampled_from(TAGS))
        send, recv = (
            draw(st.sampled_from(["send", "isend"])),
            draw(st.sampled_from(["recv", "irecv"])),
        )
        return {
            source: Op(send, event, group, peer, tag, value=100 + event),
            peer: Op(recv, event, group, source, tag, value=-1),
        }
    root = draw(st.sampled_from(members)) if kind == "broadcast" else -1
    ops = {r: Op(kind, event, group, root=root, value=10 * event + r + 1) for r in members}
    if kind == "all_reduce":
        later = draw(st.sets(st.sampled_from(members)))
        ops |= {rank: replace(ops[rank], kind="async_all_reduce") for rank in later}
    return ops


# -- faults -------------------------------------------------------------------------------------


@st.composite
def faulty(draw: st.DrawFn, size: int) -> Program:
    """Draw a program with one change that may or may not keep ranks waiting."""
    program = draw(correct(size).filter(lambda p: sum(map(len, p.ranks)) > size))
    rank = draw(st.sampled_from([r for r in range(size) if program.ranks[r]]))
    plant = draw(st.sampled_from(FAULTS))
    changed = plant(draw, program, rank) or _raise(draw, program, rank)
    ops, fault = changed
    ranks = (*program.ranks[:rank], tuple(ops), *program.ranks[rank + 1 :])
    return replace(program, ranks=ranks, fault=f"rank {rank} {fault}")


Change = tuple[list[Op], str] | None


def _where(draw: st.DrawFn, ops: tuple[Op, ...], kinds: tuple[str, ...]) -> int | None:
    found = [i for i, op in enumerate(ops) if op.kind in kinds]
    return draw(st.sampled_from(found)) if found else None


def _drop(draw: st.DrawFn, program: Program, rank: int) -> Change:
    """Leave out an operation; a start with its wait."""
    ops = program.ranks[rank]
    i = _where(draw, ops, (*COLLECTIVES, *MESSAGES, "wait"))
    if i is None:
        return None
    start = ops[i].kind in STARTS
    left = [op for j, op in enumerate(ops) if j != i and not (start and op.name == ops[i].name)]
    return left, f"leaves out {ops[i].kind} {ops[i].name}"


def _swap(draw: st.DrawFn, program: Program, rank: int) -> Change:
    """Swap two operations; a start stays before its wait."""
    ops = list(program.ranks[rank])
    choices = []
    for i in range(len(ops)):
        for j in range(i + 1, len(ops)):
            new = ops.copy()
            new[i], new[j] = ops[j], ops[i]
            names = [op.name for op in new if op.kind == "wait" or op.kind in STARTS]
            kinds = [op.kind for op in new if op.kind == "wait" or op.kind in STARTS]
            firsts = {name: kinds[names.index(name)] for name in names}
            if "wait" not in firsts.values() and "compute" not in (ops[i].kind, ops[j].kind):
                choices.append(
                    (new, f"swaps {ops[i].kind} {ops[i].name} and {ops[j].kind} {ops[j].name}")
                )
    return draw(st.sampled_from(choices)) if choices else None


def _kind(draw: st.DrawFn, program: Program, rank: int) -> Change:
    """Call another collective, one without a source (see above what a broadcast would do)."""
    ops = list(program.ranks[rank])
    i = _where(draw, program.ranks[rank], SYMMETRIC)
    if i is None:
        return None
    kind = draw(st.sampled_from([k for k in SYMMETRIC if k != ops[i].kind]))
    fault = f"calls {kind} in place of {ops[i].kind} {ops[i].name}"
    ops[i] = replace(ops[i], kind=kind)
    return ops, fault


def _peer(draw: st.DrawFn, program: Program, rank: int) -> Change:
    """Send to another rank, or receive from another one."""
    ops = list(program.ranks[rank])
    choices = [
        (i, peer)
        for i, op in enumerate(ops)
        if op.kind in MESSAGES
        for peer in program.members(op.group)
        if peer not in (rank, op.peer)
    ]
    if not choices:
        return None
    i, peer = draw(st.sampled_from(choices))
    ops[i] = replace(ops[i], peer=peer)
    return ops, f"names rank {peer} in {ops[i].kind} {ops[i].name}"


def _tag(draw: st.DrawFn, program: Program, rank: int) -> Change:
    """Give a message another tag."""
    ops = list(program.ranks[rank])
    i = _where(draw, program.ranks[rank], MESSAGES)
    if i is None:
        return None
    tag = draw(st.sampled_from([t for t in TAGS if t != ops[i].tag]))
    ops[i] = replace(ops[i], tag=tag)
    return ops, f"has tag {tag} in {ops[i].kind} {ops[i].name}"


def _raise(draw: st.DrawFn, program: Program, rank: int) -> tuple[list[Op], str]:
    """Raise an error somewhere."""
    ops = list(program.ranks[rank])
    i = draw(st.integers(0, len(ops)))
    return [*ops[:i], Op("raise"), *ops[i:]], f"raises after {i} operations"


def _stop(draw: st.DrawFn, program: Program, rank: int) -> Change:
    """Leave out the rest."""
    ops = program.ranks[rank]
    i = draw(st.integers(0, len(ops) - 1))
    return list(ops[:i]), f"stops after {i} operations"


FAULTS: tuple[Callable[[st.DrawFn, Program, int], Change], ...] = (
    _drop, _drop, _swap, _swap, _kind, _peer, _tag, _raise, _stop,
)  # fmt: skip
