"""What the ranks say of themselves, read from their answers. Ranks here are the lab's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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

    key: GroupKey
    last: int  #: number of the newest collective; -1: not known any more
    entries: Mapping[int, Entry]
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


@dataclass(frozen=True)
class Sample:
    """One rank at one moment."""

    rank: int
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


def read(answers: Mapping[int, Mapping[str, Any]]) -> dict[int, Sample]:
    """Read what some ranks answered; theirs are ranks of ``torch.distributed``, which a learner
    may have numbered differently from the lab's."""
    names = _Names({a["me"]: rank for rank, a in answers.items() if a["me"] >= 0})
    return {rank: _sample(rank, answer, names) for rank, answer in answers.items()}


class _Names(dict[int, int]):
    """The lab's rank of each rank of ``torch.distributed``.

    One that gave no answer keeps its number where the two are the same for all others; else it
    gets one that no rank has, and that nothing is known of.
    """

    def __missing__(self, number: int) -> int:
        same = all(theirs == ours for theirs, ours in self.items())
        return number if same or number < 0 else -2 - number


def _sample(rank: int, answer: Mapping[str, Any], names: _Names) -> Sample:
    groups = {g.key: g for g in (_group(raw, names) for raw in answer["groups"])}
    return Sample(
        rank,
        answer["state"],
        answer["still"],
        _wait(answer["wait"], groups.values(), names) if answer["wait"] else None,
        tuple(answer["stamp"]),
        groups,
        frozenset((where, group) for where, group in answer["places"]),
        answer["made"],
        answer["me"] >= 0,
    )


def _group(raw: Mapping[str, Any], names: _Names) -> Group:
    entries = {
        e["number"]: Entry(
            e["number"],
            e["name"],
            tuple(tuple(shape) for shape in e["shapes"]),
            tuple(e["types"]),
            e["done"],
        )
        for e in raw["entries"]
    }
    posted = {(kind, names[peer], tag): count for kind, peer, tag, count in raw["posted"]}
    key = (raw["name"], tuple(names[r] for r in raw["ranks"]))
    return Group(key, raw["last"], entries, posted, raw["barriers"])


def _wait(raw: Mapping[str, Any], groups: Iterable[Group], names: _Names) -> Wait:
    by_name = {g.key[0]: g for g in groups}
    kind = raw["kind"]
    peer = raw.get("peer", -1)
    options: list[tuple[GroupKey, int]] = []
    if kind == "collective":
        pairs = [(o["group"], o["number"]) for o in raw["options"]]
        options = [(by_name[name].key, number) for name, number in pairs if name in by_name]
    elif "group" in raw and raw["group"] in by_name:
        group = by_name[raw["group"]]
        options = [(group.key, raw["number"])]
        if peer >= 0:
            peer = group.ranks[peer]
    root = raw.get("root")
    return Wait(
        kind,
        tuple(options),
        peer,
        raw.get("tag", 0),
        None if root is None else names[root],
        raw.get("size", -1),
        raw.get("number", 0),
        raw["call"],
        raw["where"],
        raw["line"],
        raw["seconds"],
    )
