"""What one rank says of itself at one moment: what it waits for, and what it has provided.

On the way ranks are numbered as ``torch.distributed`` does on them; ``deadlock.samples`` turns
them into the lab's. The classes are the same before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: A group by name and members. Ranks that made groups in different order gave one name to
#: different groups, so the name alone would not do.
GroupKey = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Entry:
    """One collective as one rank issued it."""

    number: int  #: from 1, in its group
    name: str  #: "all_reduce"
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    done: bool

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


@dataclass(frozen=True)
class Group:
    """A process group as one of its ranks sees it."""

    key: GroupKey  #: its members in the order of the group
    last: int  #: number of the newest collective; -1: not known any more
    entries: Mapping[int, Entry]  #: the newest and the pending ones, by number
    posted: Mapping[tuple[str, int, int], int]  #: (kind, peer, tag) -> count; peer -1: any
    barriers: int  #: monitored barriers entered

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.key[1]


@dataclass(frozen=True)
class Wait:
    """What a rank waits for.

    ``kind`` is "collective", "send", "recv", "recv_any", "monitored_barrier", "new_group" or
    "init". ``options`` has (group, number) for the first five: more than one where torch does
    not say which of several pending ones it is.
    """

    kind: str
    options: tuple[tuple[GroupKey, int], ...] = ()
    peer: int = -1
    tag: int = 0
    root: int | None = None
    size: int = -1  #: world size that init_process_group was given
    number: int = 0  #: of "new_group"
    call: str = ""  #: "all_reduce", "backward", …
    where: str = ""  #: "In[7], line 3"
    line: str = ""  #: "dist.all_reduce(x)"
    seconds: float = 0.0
    me: int = -1  #: of a message: this rank's own number in the group


@dataclass(frozen=True)
class Sample:
    """One rank at one moment."""

    rank: int  #: -1 where torch has not given it a number yet
    state: str  #: "idle", "computing" or "waiting"
    still: bool = False  #: no thread of it has run since the look before
    wait: Wait | None = None
    stamp: tuple[int, ...] = ()  #: equal stamps: nothing has run in between
    groups: Mapping[GroupKey, Group] = field(default_factory=dict)
    #: of the calls that waited last: "In[7], line 3" and the group's name
    places: frozenset[tuple[str, str]] = frozenset()
    made: int = 0  #: groups made so far
    joined: bool = True  #: init_process_group has returned

    def waited(self, seconds: float) -> Sample:
        """Return this sample some seconds later."""
        assert self.wait is not None
        return replace(self, wait=replace(self.wait, seconds=self.wait.seconds + seconds))

    @property
    def entry(self) -> Entry | None:
        """The collective that it waits in."""
        if self.wait is None or self.wait.kind != "collective" or not self.wait.options:
            return None
        key, number = self.wait.options[0]
        return self.groups[key].entries.get(number)
