"""Draw small programs of collectives, messages, threads and groups, and write them as cells.

A program has a list of operations for each rank, and more lists for threads of a rank.
``correct`` draws one that ends by itself: its operations come from events in one global order (a
collective on all members of its group, a message with both of its ends, a group that its members
make), and every thread meets its events in that order. ``faulty`` changes one thing in a correct
program. How a program ends is worked out in ``reference``.

On one rank a group belongs to the main thread or to one other thread: two threads that use a group
at the same time have no order, and nobody could say how that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

WORLD = "world"
#: The group whose calls have a time limit.
BRIEF = "brief"
#: Every member brings data to, or waits for, every other one.
SYMMETRIC = ("all_reduce", "barrier", "all_gather")
#: Collectives with a result that the program looks at.
NOTED = ("all_reduce", "all_gather", "broadcast")
COLLECTIVES = (*SYMMETRIC, "broadcast", "async_all_reduce")
MESSAGES = ("send", "recv", "isend", "irecv")
#: These go on at once, and have a "wait" later.
STARTS = ("async_all_reduce", "isend", "irecv")
#: These come after what they name.
LATER = ("wait", "look")
#: The number of a rank's main thread among its threads.
MAIN = 0


@dataclass(frozen=True)
class Op:
    """One operation of one thread. ``peer`` and ``root`` are numbers in the world."""

    #: Of COLLECTIVES or MESSAGES, or "wait", "compute", "raise", "tick" (until the program is
    #: over), "new" (makes a group), "start" and "join" (of a thread), "look" (at a value).
    kind: str
    name: int = 0  #: of its variables, or of a thread; "wait" and "look" have that of a call
    group: str = WORLD
    peer: int = -1
    tag: int = 0
    root: int = -1
    value: int = 0  #: what this rank brings
    seconds: float = 0.0  #: that a "compute" takes
    quiet: bool = False  #: its result is looked at later

    @property
    def begins(self) -> bool:
        """Whether another operation may come back to it."""
        return self.kind in STARTS or self.quiet


@dataclass(frozen=True)
class Group:
    """A sub-group: made by all ranks before anything else, or by its members where "new" stands."""

    members: tuple[int, ...]
    local: bool = False  #: with use_local_synchronization
    limit: float = 0.0  #: seconds that a call may take; 0: torch's half hour


@dataclass(frozen=True)
class Thread:
    """What a thread of a rank does, once the main thread has started it."""

    rank: int
    ops: tuple[Op, ...]
    executor: bool = False  #: in a ThreadPoolExecutor


@dataclass(frozen=True)
class Program:
    """What each rank does in its main thread, and in others (by number)."""

    ranks: tuple[tuple[Op, ...], ...]
    groups: dict[str, Group] = field(default_factory=dict)
    threads: dict[int, Thread] = field(default_factory=dict)
    elements: int = 1  #: of each tensor
    fault: str = ""  #: what was changed

    @property
    def size(self) -> int:
        return len(self.ranks)

    def members(self, group: str) -> tuple[int, ...]:
        return tuple(range(self.size)) if group == WORLD else self.groups[group].members

    def limit(self, group: str) -> float:
        return 0.0 if group == WORLD else self.groups[group].limit

    def ops(self, rank: int, thread: int) -> tuple[Op, ...]:
        return self.ranks[rank] if thread == MAIN else self.threads[thread].ops

    def strands(self) -> list[tuple[int, int]]:
        """List rank and number of every thread, the main ones first."""
        others = [(thread.rank, number) for number, thread in self.threads.items()]
        return [*((rank, MAIN) for rank in range(self.size)), *others]

    def __repr__(self) -> str:
        return f"\n# {self.size} ranks; fault: {self.fault or 'none'}\n{write(self)[0]}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis prints it


# -- the code of a cell -------------------------------------------------------------------------

#: Rank, thread and index of an operation.
Place = tuple[int, int, int]

HEAD = """#px In[7]
import threading, time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
got, notes, works, over = [], {}, [], threading.Event()
threads, gone = [], []
"""


def write(program: Program) -> tuple[str, dict[Place, int]]:
    """Return the cell of a program, and the line of each operation.

    ``got`` has the results of a rank's main thread, ``notes`` those of its others.
    """
    lines = HEAD.splitlines()
    places: dict[Place, int] = {}
    for name, group in program.groups.items():
        limit = f", timeout=timedelta(seconds={group.limit:g})" if group.limit else ""
        if not group.local:
            lines.append(f"{name} = dist.new_group({list(group.members)}{limit})")
    for number, thread in program.threads.items():
        lines += [f"def thread{number}():", f"    got = notes[{number}] = []", "    try:"]
        _write_ops(program, thread.rank, number, " " * 8, lines, places)
        lines += ["    except Exception as error:", "        got.append(type(error).__name__)"]
        lines += ["    finally:", f"        gone.append({number})"]
    for rank in range(program.size):
        lines.append(f"{'el' if rank else ''}if rank == {rank}:")
        _write_ops(program, rank, MAIN, " " * 4, lines, places)
    return "\n".join(lines) + "\n", places


def _write_ops(
    program: Program, rank: int, thread: int, indent: str, lines: list[str],
    places: dict[Place, int],
) -> None:  # fmt: skip
    ops = program.ops(rank, thread)
    for index, op in enumerate(ops):
        before, call, after = _statements(op, program, ops)
        if program.limit(op.group) and op.kind in COLLECTIVES:
            before = [*before, "try:"]
            call = f"    {call}"
            after = [*(f"    {line}" for line in after), "except RuntimeError:"]
            after.append("    got.append('late')")
        lines += [indent + line for line in before]
        lines.append(indent + call)
        places[rank, thread, index] = len(lines)
        lines += [indent + line for line in after]
    if not ops:
        lines.append(f"{indent}pass")


def _statements(op: Op, program: Program, ops: tuple[Op, ...]) -> tuple[list[str], str, list[str]]:
    """Return what comes before an operation's own line, that line, and what comes after."""
    x, work, out = f"x{op.name}", f"work{op.name}", f"out{op.name}"
    group = "" if op.group == WORLD else f", group={op.group}"
    tag = f", tag={op.tag}" if op.tag else ""
    many = program.elements > 1
    tensor = f"{x} = torch.full([{program.elements}], {op.value})"
    notes = [f"got.append({x}.unique().item())" if many else f"got.append({x}.item())"]
    look = "y.unique().item()" if many else "y.item()"
    begun = [o.kind for o in ops if o.begins and o.name == op.name]
    if op.kind == "look" and begun == ["all_gather"]:
        notes = [f"got.append([{look} for y in {out}])"]
    note = [] if op.quiet else notes
    keep = [f"works.append({work})"]  # gloo may give up a message whose handle has gone
    match op.kind:
        case "compute":
            return [], f"time.sleep({op.seconds})", []
        case "raise":
            return [], "raise ValueError('planted')", []
        case "tick":
            return [], "while not over.is_set(): time.sleep(0.02)", []
        case "start" if program.threads[op.name].executor:
            lines = [f"pool{op.name} = ThreadPoolExecutor(1)"]
            call = f"threads.append(pool{op.name}.submit(thread{op.name}))"
            return lines, call, [f"task{op.name} = threads[-1]"]
        case "start":
            thread = f"threading.Thread(target=thread{op.name}, daemon=True)"
            lines = [f"task{op.name} = {thread}", f"threads.append(task{op.name})"]
            return lines, f"task{op.name}.start()", []
        case "join":
            executor = program.threads[op.name].executor
            return [], f"task{op.name}.{'result' if executor else 'join'}()", []
        case "new":
            members = list(program.members(op.group))
            call = f"{op.group} = dist.new_group({members}, use_local_synchronization=True)"
            return [], call, []
        case "barrier":
            return [], f"dist.barrier({group.removeprefix(', ')})", []
        case "all_reduce":
            return [tensor], f"dist.all_reduce({x}{group})", note
        case "broadcast":
            return [tensor], f"dist.broadcast({x}, {op.root}{group})", note
        case "all_gather":
            size = len(program.members(op.group))
            empty = f"{out} = [torch.zeros_like({x}) for _ in range({size})]"
            call = f"dist.all_gather({out}, {x}{group})"
            notes = [f"got.append([{look} for y in {out}])"]
            return [tensor, empty], call, [] if op.quiet else notes
        case "async_all_reduce":
            return [tensor], f"{work} = dist.all_reduce({x}, async_op=True{group})", keep
        case "send":
            return [tensor], f"dist.send({x}, {op.peer}{group}{tag})", []
        case "recv":
            return [tensor], f"dist.recv({x}, {op.peer}{group}{tag})", note
        case "isend" | "irecv":
            return [tensor], f"{work} = dist.{op.kind}({x}, {op.peer}{group}{tag})", keep
        case "look":
            return [], notes[0], []
        case "wait":
            sent = any(o.kind == "isend" and o.name == op.name for o in ops)
            return [], f"{work}.wait()", [] if sent else note
    raise ValueError(op.kind)


# -- correct programs ---------------------------------------------------------------------------

#: Milliseconds that a rank computes.
COMPUTE = (0, 5, 20)
TAGS = (0, 1, 2)
#: Seconds that a thread sleeps before anything else.
SLEEP = 1.0


@dataclass(frozen=True)
class Mix:
    """What programs have beside calls of the main threads."""

    threads: bool = True
    local: bool = True  #: groups with local synchronisation
    limit: float = 2.0  #: seconds of the group with a time limit; 0: no such group
    elements: int = 1
    looks: bool = False  #: at results that are there for long; not only at once


@dataclass
class _Plan:
    """A thread that is being drawn."""

    rank: int
    groups: tuple[str, ...]  #: that are its own on its rank
    executor: bool
    sleep: float  #: before anything else
    early: bool  #: started before anything else
    join_at: int | None  #: at this event; None: never
    started: bool = False
    joined: bool = False


class _Drawing:
    """A correct program that is being drawn, event by event."""

    def __init__(self, draw: st.DrawFn, size: int, mix: Mix) -> None:
        self.draw, self.size, self.mix = draw, size, mix
        self.count = draw(st.integers(3, 10))
        self.groups = _groups(draw, size, mix)
        local = [name for name, group in self.groups.items() if group.local]
        moments = sorted(draw(st.integers(0, self.count - 1)) for _ in local)
        self.makes = dict(zip(local, moments, strict=True))
        self.plans = _plans(draw, size, self.groups, self.count) if mix.threads else {}
        self.strands: dict[tuple[int, int], list[Op]] = {(r, MAIN): [] for r in range(size)}
        self.due: dict[tuple[int, int], list[tuple[int, Op]]] = {}  # event, wait
        self.closed: set[str] = set()  #: groups that are used no more

    def program(self) -> Program:
        tickers = self._tickers() if self.mix.threads else {}
        for number, plan in self.plans.items():
            if plan.early:
                self._start(number)
        for event in range(self.count):
            self._flush(event)
            self._make(event)
            for number, plan in self.plans.items():
                if plan.join_at == event:
                    self._join(number)
            self._add(event)
        self._flush(None)
        for number, plan in self.plans.items():
            if plan.join_at == self.count:
                self._join(number)
        threads = {
            number: Thread(plan.rank, tuple(self.strands[plan.rank, number]), plan.executor)
            for number, plan in self.plans.items()
            if plan.started
        }
        ranks = tuple(tuple(self.strands[rank, MAIN]) for rank in range(self.size))
        return Program(ranks, self.groups, threads | tickers, self.mix.elements)

    def _tickers(self) -> dict[int, Thread]:
        """Make threads tick that never do anything, on some ranks, from some moment on."""
        threads = {}
        for rank in range(self.size):
            if self.draw(st.integers(0, 5)) == 5:
                number = 10 + rank
                threads[number] = Thread(rank, (Op("tick"),), self.draw(st.booleans()))
                self.strands[rank, MAIN].append(Op("start", number))
        return threads

    def _start(self, number: int) -> None:
        plan = self.plans[number]
        plan.started = True
        self.strands[plan.rank, MAIN].append(Op("start", number))
        sleep = [Op("compute", seconds=plan.sleep)] if plan.sleep else []
        self.strands[plan.rank, number] = sleep

    def _join(self, number: int) -> None:
        plan = self.plans[number]
        plan.joined = True
        self.closed |= set(plan.groups)
        if plan.started:
            strand = plan.rank, number
            self.strands[strand] += [wait for _, wait in self.due.pop(strand, [])]
            self.strands[plan.rank, MAIN].append(Op("join", number))

    def _flush(self, event: int | None) -> None:
        """Wait for what was started and is due; for everything if None."""
        for strand, due in self.due.items():
            now = [wait for when, wait in due if event is None or when <= event]
            self.strands[strand] += now
            self.due[strand] = [item for item in due if item[1] not in now]

    def _make(self, event: int) -> None:
        for name, when in self.makes.items():
            if when == event:
                for rank in self.groups[name].members:
                    self.strands[rank, MAIN].append(Op("new", group=name))

    def _owner(self, group: str, rank: int) -> int:
        owners = (n for n, plan in self.plans.items() if plan.rank == rank and group in plan.groups)
        return next(owners, MAIN)

    def _add(self, event: int) -> None:
        """Draw what happens next, and give it to the threads that do it."""
        made = [name for name in self.groups if self.makes.get(name, 0) <= event]
        usable = [name for name in made if name not in self.closed]
        group = self.draw(st.sampled_from([WORLD, *usable]))
        members = self.groups[group].members if group != WORLD else tuple(range(self.size))
        ops = _event(self.draw, event, group, members)
        if self.mix.looks and group != BRIEF:
            has = [r for r, op in ops.items() if op.kind in (*NOTED, "recv")]
            quiet = self.draw(st.sets(st.sampled_from(has))) if has else set()
            ops |= {rank: replace(ops[rank], quiet=True) for rank in quiet}
        if group == BRIEF and self.draw(st.booleans()):
            # Some of its members never come; it cannot be used any more then.
            left_out = self.draw(st.sets(st.sampled_from(members), min_size=1))
            ops = {rank: op for rank, op in ops.items() if rank not in left_out}
            self.closed.add(BRIEF)
        for rank, op in ops.items():
            number = self._owner(op.group, rank)
            if number != MAIN and not self.plans[number].started:
                self._start(number)
            self.strands[rank, number].append(op)
            if op.begins:
                later = event + self.draw(st.integers(1, 4))
                back = Op("wait" if op.kind in STARTS else "look", event)
                self.due.setdefault((rank, number), []).append((later, back))


def _groups(draw: st.DrawFn, size: int, mix: Mix) -> dict[str, Group]:
    """Draw sub-groups, at least one."""

    def subset(ranks: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(draw(st.sets(st.sampled_from(ranks), min_size=2))))

    everyone = range(size)
    groups = {"first": Group(subset(everyone))}
    if draw(st.booleans()):
        groups["second"] = Group(subset(everyone))
    if mix.limit and draw(st.booleans()):
        groups[BRIEF] = Group(subset(everyone), limit=mix.limit)
    if mix.local and draw(st.booleans()):
        groups["third"] = Group(subset(everyone), local=True)
        # torch names such a group by how many its members have made: they must have made as many.
        alike = [groups["third"].members, sorted(set(everyone) - set(groups["third"].members))]
        choices = [ranks for ranks in alike if len(ranks) > 1]
        if choices and draw(st.booleans()):
            groups["fourth"] = Group(subset(draw(st.sampled_from(choices))), local=True)
    return groups


def _plans(draw: st.DrawFn, size: int, groups: dict[str, Group], count: int) -> dict[int, _Plan]:
    """Draw threads that do some of the calls of their ranks."""
    plans: dict[int, _Plan] = {}
    for rank in range(size):
        own = [name for name, group in groups.items() if rank in group.members]
        for number in (2 * rank + 1, 2 * rank + 2):
            # A thread must not be ahead of the main thread, which makes the local groups.
            early = [name for name in own if not groups[name].local]
            late = [name for name in own if groups[name].local]
            choices = [(name,) for name in late] + ([tuple(early)] if early else [])
            if not choices or draw(st.integers(0, 2)):
                continue
            names = draw(st.sampled_from(choices))
            own = [name for name in own if name not in names]
            plans[number] = _Plan(
                rank,
                names,
                executor=draw(st.booleans()),
                sleep=draw(st.sampled_from((0, 0, SLEEP))),
                early=names != () and not groups[names[0]].local and draw(st.booleans()),
                join_at=draw(st.sampled_from((None, count, *range(1, count)))),
            )
    return plans


def _event(draw: st.DrawFn, event: int, group: str, members: tuple[int, ...]) -> dict[int, Op]:
    """Draw what happens next: a collective, a message, or a rank that computes."""
    if group == BRIEF:
        kind = draw(st.sampled_from(SYMMETRIC))
        return {r: Op(kind, event, group, value=10 * event + r + 1) for r in members}
    # Half of them are messages and asynchronous: these can go wrong in more ways.
    kind = draw(
        st.sampled_from([*SYMMETRIC, "all_reduce", "broadcast", *["message"] * 4, "compute"])
    )
    if kind == "compute":
        rank = draw(st.sampled_from(members))
        return {rank: Op(kind, event, group, seconds=draw(st.sampled_from(COMPUTE)) / 1000)}
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


@st.composite
def correct(draw: st.DrawFn, size: int, mix: Mix = Mix()) -> Program:
    """Draw a program of ``size`` ranks in which nobody blocks forever."""
    return _Drawing(draw, size, mix).program()


# -- faults -------------------------------------------------------------------------------------


@st.composite
def faulty(draw: st.DrawFn, size: int, mix: Mix = Mix()) -> Program:
    """Draw a program with one change that may or may not keep ranks waiting."""
    program = draw(correct(size, mix).filter(lambda p: sum(map(len, p.ranks)) > size))
    choices = [s for s in program.strands() if _calls(program.ops(*s))]
    rank, thread = draw(st.sampled_from(choices or [(0, MAIN)]))
    plant = draw(st.sampled_from(FAULTS))
    ops, fault = plant(draw, program, rank, thread) or _raise(draw, program, rank, thread)
    changed = _replace(program, rank, thread, ops)
    who = f"rank {rank}" if thread == MAIN else f"thread {thread} of rank {rank}"
    return replace(changed, fault=f"{who} {fault}")


def _replace(program: Program, rank: int, thread: int, ops: Sequence[Op]) -> Program:
    if thread != MAIN:
        new = replace(program.threads[thread], ops=tuple(ops))
        return replace(program, threads=program.threads | {thread: new})
    # What used a group that is not made now goes with it, and so do threads not started.
    made = {op.group for op in ops if op.kind == "new"} | {WORLD}
    made |= {name for name, group in program.groups.items() if not group.local}
    begun = {op.name for op in ops if op.kind == "start"}
    kept = [
        op
        for op in ops
        if (op.kind in LATER or op.group in made) and (op.kind != "join" or op.name in begun)
    ]
    names = {op.name for op in kept if op.begins}
    kept = [op for op in kept if op.kind not in LATER or op.name in names]
    threads = {
        number: t if t.rank != rank else replace(t, ops=_only(t.ops, made))
        for number, t in program.threads.items()
        if t.rank != rank or number in begun
    }
    ranks = (*program.ranks[:rank], tuple(kept), *program.ranks[rank + 1 :])
    return replace(program, ranks=ranks, threads=threads)


def _only(ops: tuple[Op, ...], groups: set[str]) -> tuple[Op, ...]:
    """Keep what uses these groups."""
    left = [op for op in ops if op.kind in LATER or op.group in groups]
    names = {op.name for op in left if op.begins}
    return tuple(op for op in left if op.kind not in LATER or op.name in names)


def _calls(ops: tuple[Op, ...]) -> list[Op]:
    return [op for op in ops if op.kind in (*COLLECTIVES, *MESSAGES, "new")]


Change = tuple[list[Op], str] | None


def _where(draw: st.DrawFn, ops: tuple[Op, ...], kinds: tuple[str, ...]) -> int | None:
    found = [i for i, op in enumerate(ops) if op.kind in kinds]
    return draw(st.sampled_from(found)) if found else None


def _drop(draw: st.DrawFn, program: Program, rank: int, thread: int) -> Change:
    """Leave out an operation; a start with its wait."""
    ops = program.ops(rank, thread)
    i = _where(draw, ops, (*COLLECTIVES, *MESSAGES, "wait", "new", "start"))
    if i is None:
        return None
    later = [op for op in ops if op.kind in LATER and op.name == ops[i].name]
    left = [op for op in ops[:i] + ops[i + 1 :] if not (ops[i].begins and op in later)]
    what = ops[i].group if ops[i].kind == "new" else ops[i].name
    return left, f"leaves out {ops[i].kind} {what}"


def _swap(draw: st.DrawFn, program: Program, rank: int, thread: int) -> Change:
    """Swap two operations; a start stays before its wait, a group is made before it is used."""
    ops = list(program.ops(rank, thread))
    choices = []
    for i in range(len(ops)):
        for j in range(i + 1, len(ops)):
            new = ops.copy()
            new[i], new[j] = ops[j], ops[i]
            if _in_order(program, new) and "compute" not in (ops[i].kind, ops[j].kind):
                choices.append(
                    (new, f"swaps {ops[i].kind} {ops[i].name} and {ops[j].kind} {ops[j].name}")
                )
    return draw(st.sampled_from(choices)) if choices else None


def _in_order(program: Program, ops: list[Op]) -> bool:
    """Return whether everything comes after what it builds on."""
    begun: set[int] = set()
    threads: set[int] = set()
    unmade = {op.group for op in ops if op.kind == "new"}
    for op in ops:
        if op.kind in LATER and op.name not in begun:
            return False
        if op.kind == "join" and op.name not in threads:
            return False
        used = {o.group for o in program.threads[op.name].ops} if op.kind == "start" else {op.group}
        if op.kind == "new":
            unmade.discard(op.group)
        elif used & unmade:
            return False
        if op.begins:
            begun.add(op.name)
        if op.kind == "start":
            threads.add(op.name)
    return True


def _kind(draw: st.DrawFn, program: Program, rank: int, thread: int) -> Change:
    """Call another collective, one without a source (``reference`` says what a broadcast does)."""
    ops = list(program.ops(rank, thread))
    i = _where(draw, tuple(ops), SYMMETRIC)
    if i is None:
        return None
    kinds = [k for k in SYMMETRIC if k != ops[i].kind and (k in NOTED or not ops[i].quiet)]
    kind = draw(st.sampled_from(kinds))
    fault = f"calls {kind} in place of {ops[i].kind} {ops[i].name}"
    ops[i] = replace(ops[i], kind=kind)
    return ops, fault


def _peer(draw: st.DrawFn, program: Program, rank: int, thread: int) -> Change:
    """Send to another rank, or receive from another one."""
    ops = list(program.ops(rank, thread))
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


def _tag(draw: st.DrawFn, program: Program, rank: int, thread: int) -> Change:
    """Give a message another tag."""
    ops = list(program.ops(rank, thread))
    i = _where(draw, tuple(ops), MESSAGES)
    if i is None:
        return None
    tag = draw(st.sampled_from([t for t in TAGS if t != ops[i].tag]))
    ops[i] = replace(ops[i], tag=tag)
    return ops, f"has tag {tag} in {ops[i].kind} {ops[i].name}"


def _join_early(draw: st.DrawFn, program: Program, rank: int, thread: int) -> Change:
    """Wait for a thread right after it was started: the main thread does nothing meanwhile."""
    ops = list(program.ops(rank, thread))
    i = _where(draw, tuple(ops), ("start",))
    if i is None:
        return None
    number = ops[i].name
    left = [op for op in ops if op.kind != "join" or op.name != number]
    left.insert(left.index(ops[i]) + 1, Op("join", number))
    return left, f"waits at once for its thread {number}"


def _raise(
    draw: st.DrawFn, program: Program, rank: int, thread: int
) -> tuple[list[Op], str]:  # fmt: skip
    """Raise an error somewhere."""
    ops = list(program.ops(rank, thread))
    i = draw(st.integers(0, len(ops)))
    return [*ops[:i], Op("raise"), *ops[i:]], f"raises after {i} operations"


def _stop(draw: st.DrawFn, program: Program, rank: int, thread: int) -> Change:
    """Leave out the rest."""
    ops = program.ops(rank, thread)
    i = draw(st.integers(0, len(ops) - 1))
    return list(ops[:i]), f"stops after {i} operations"


FAULTS: tuple[Callable[[st.DrawFn, Program, int, int], Change], ...] = (
    _drop, _drop, _swap, _swap, _kind, _peer, _tag, _join_early, _raise, _stop,
)  # fmt: skip
