"""What one rank says of itself: what it waits for and has provided, and what it has issued.

On the way ranks are numbered as ``torch.distributed`` does on them, which is the same on
all; ``deadlock.samples`` turns the numbers of a sample into the lab's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: A group by name and members. Ranks that made groups in different order gave one name to
#: different groups, so the name alone would not do.
GroupKey = tuple[str, tuple[int, ...]]


#: torch's names of types, by those that the recorder has for them.
TYPES = {
    "Byte": "uint8", "Char": "int8", "Bool": "bool", "Short": "int16", "Half": "float16",
    "BFloat16": "bfloat16", "Int": "int32", "Float": "float32", "Long": "int64",
    "Double": "float64", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One collective as one rank issued it."""

    number: int  #: from 1, in its group
    name: str  #: "all_reduce"
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    done: bool
    root: int | None = None  #: of a rooted one that Python issued, in the world
    #: elements for each member and from each member, where an all_to_all was told
    splits: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    where: str = ""  #: of the call that issued it: "In[7], line 3"

    @property
    def elements(self) -> tuple[int, ...]:
        """Number of elements of each tensor."""
        counts = []
        for shape in self.shapes:
            count = 1
            for n in shape:
                count *= n
            counts.append(count)
        return tuple(counts)


#: A message of a rank: kind, peer, tag, and its number among those of the three, from 1.
MessageKey = tuple[str, int, int, int]


@dataclass(frozen=True)
class Size:
    """What a send brings or a receive has room for, and where the call stands."""

    elements: int
    type: str  #: "float32"
    where: str  #: "In[7], line 3"
    line: str  #: "dist.send(x, 1)"
    posted: int = 0  #: when, in nanoseconds since 1970 by the clock of the rank's host


@dataclass(frozen=True)
class Group:
    """A process group as one of its ranks sees it."""

    key: GroupKey  #: its members in the order of the group
    last: int  #: number of the newest collective; -1: not known any more
    entries: Mapping[int, Entry]  #: the newest and the pending ones, by number
    posted: Mapping[tuple[str, int, int], int]  #: (kind, peer, tag) -> count; peer -1: any
    barriers: int  #: monitored barriers entered
    sizes: Mapping[MessageKey, Size] = field(default_factory=dict)  #: of the newest messages
    #: messages whose handle was dropped before anybody waited: they may never go out
    dropped: frozenset[MessageKey] = frozenset()

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.key[1]


@dataclass(frozen=True)
class Message:
    """One end of a message that has not met the other one."""

    kind: str  #: "send", "recv" or "recv_any"
    group: GroupKey
    number: int  #: from 1, among those with its kind, peer and tag
    peer: int
    tag: int


@dataclass(frozen=True)
class Wait:
    """What a thread waits for.

    ``options`` has (group, number) of what it may be waiting for: more than one where torch does
    not say which of several pending ones it is. In "device" it waits for all, and for ``messages``;
    for at least one of them if it is ``partial``.

    ============================= ==============================================================
    ``kind``                      it waits for
    ============================= ==============================================================
    collective, monitored_barrier the other members
    send, recv, recv_any          the other end of a message
    new_group, init               the ranks that are to be in the group
    device                        what was given to the GPU: collectives, and ``messages``
    thread                        another thread of the same rank, without a time limit
    store, unknown                somebody, anybody: a key of a store, a Work that nobody knows
    ============================= ==============================================================
    """

    kind: str
    options: tuple[tuple[GroupKey, int], ...] = ()
    peer: int = -1
    tag: int = 0
    root: int | None = None
    size: int = -1  #: world size that init_process_group was given
    number: int = 0  #: of "new_group": groups made by then; -1: it meets its members alone
    call: str = ""  #: "all_reduce", "backward", …
    where: str = ""  #: "In[7], line 3"
    line: str = ""  #: "dist.all_reduce(x)"
    seconds: float = 0.0
    me: int = -1  #: of a message, and of "init": this rank's own number in the group
    issued: str = ""  #: where the call was made, if it waits somewhere else: "In[6], line 2"
    at: str = ""  #: of "init": the address of the meeting; of "store": the keys
    messages: tuple[Message, ...] = ()  #: of "device": what it waits for besides collectives
    partial: bool = False  #: of "device": within a cell, where nobody sees which of them it needs
    making: GroupKey | None = None  #: of "new_group": the group that is made
    doubt: str = ""  #: what else could end it that labkit cannot see into: it is never proved


@dataclass(frozen=True)
class Issuer:
    """Something in a rank, beside its main thread, that may issue calls.

    It can do so when what holds it is over; one that nothing holds is doubtful: nobody can see
    what it will do.
    """

    name: str  #: "a thread of rank {rank} is alive: Thread-3 (tick)"
    wait: Wait | None = None
    #: it can act only while the main thread is idle: a timer or task of its event loop
    when_idle: bool = False
    ends: bool = False  #: what holds it has a time limit: it can go on for certain


@dataclass(frozen=True)
class Sample:
    """One rank at one moment."""

    rank: int  #: -1 where torch has not given it a number yet
    state: str  #: "idle", "computing" or "waiting"
    still: bool = False  #: no data was on its way to it or from it at two looks
    wait: Wait | None = None  #: of the main thread
    stamp: tuple[int, ...] = ()  #: equal stamps: nothing that waits has run in between
    groups: Mapping[GroupKey, Group] = field(default_factory=dict)
    #: of the calls that waited last: "In[7], line 3" and the group's name
    places: frozenset[tuple[str, str]] = frozenset()
    made: int = 0  #: groups made so far
    connecting: bool = False  #: a group is being made, or was given up and torch still makes it
    joined: bool = True  #: init_process_group has returned
    issuers: tuple[Issuer, ...] = ()  #: what else may issue calls
    doubts: tuple[str, ...] = ()  #: what labkit cannot see there at all: nothing is proved

    def waited(self, seconds: float) -> Sample:
        """Return this sample some seconds later."""
        assert self.wait is not None
        return replace(self, wait=replace(self.wait, seconds=self.wait.seconds + seconds))

    @property
    def entry(self) -> Entry | None:
        """The collective that it waits in."""
        if self.wait is None or self.wait.kind not in ("collective", "device"):
            return None
        if not self.wait.options:
            return None
        key, number = self.wait.options[0]
        return self.groups[key].entries.get(number)


# -- the collectives of a cell, told at its end ---------------------------------------------------

# Ranks and roots are numbered as ``torch.distributed`` does on them, which is the same on all.

# moved here

#: Stands for the kind of a collective that torch issued in C++ and of which no more is known.
UNSEEN = -1
#: The order of what torch issued in C++: nobody has seen its tensors.
UNKNOWN = "?"


@dataclass(frozen=True)
class Kind:
    """What collectives of a rank have in common, those of a loop for example."""

    name: str  #: "all_reduce", whatever its form
    backend: str
    types: tuple[str, ...]  #: ("float32",); more than one if its tensors have several
    #: of a tensor, where one that is too short would be taken for a complete one; else -1
    elements: int = -1
    #: of the dimensions in memory where the backend keeps to that: "" as in a contiguous tensor,
    #: "1,0" transposed
    order: str = ""
    gaps: bool = False  #: the backend reads or fills memory that is not the tensor's
    op: str = ""  #: "SUM"
    root: int = -1  #: -1 if it has none
    where: str = ""  #: "In[7], line 3"; "" if torch issued it in C++, or no cell did
    direct: bool = False  #: that line calls torch.distributed itself, not by way of a module


@dataclass(frozen=True)
class Calls:
    """The newest collectives of one group in a cell."""

    last: int  #: number of the newest one, from 1 in its group
    numbers: tuple[int, ...]  #: of each up to the last: its place in ``kinds``, or ``UNSEEN``
    kinds: tuple[Kind, ...]
    whole: bool  #: there were no more in this cell


@dataclass(frozen=True)
class CellCalls:
    """What one rank has issued in a cell."""

    rank: int
    groups: Mapping[GroupKey, Calls]
