"""Say what a wait needs from other ranks: an entry in the wait-for graph for each kind of call.

Here stands what torch's calls mean: who has to come to a collective, which send meets which
receive, when calls under one number do not fit. ``wait_graph`` decides from it who blocks forever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..wire.protocol import ROOTED
from ..wire.samples import Entry, Group, GroupKey, Message, Sample, Wait

#: In these, every rank brings as many elements as the others.
SAME_SIZE = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather")
#: Collectives of which shapes and types are all there is to fit.
PLAIN = ("all_reduce", "all_gather", "reduce_scatter", "barrier")


@dataclass(frozen=True)
class Situation:
    """What is known of all ranks at one moment.

    Ranks that are neither sampled nor gone may do anything: they can go on.
    """

    size: int
    samples: Mapping[int, Sample]
    gone: frozenset[int] = frozenset()  #: ended their cell, were not asked to run it, or died
    dead: frozenset[int] = frozenset()  #: those of them whose process ended
    not_asked: frozenset[int] = frozenset()  #: those of them that were not asked to run it
    #: what else may give work to a rank that has none: "a thread of this notebook is alive: …"
    outside: tuple[str, ...] = ()

    def group(self, rank: int, key: GroupKey) -> Group | None:
        sample = self.samples.get(rank)
        return sample.groups.get(key) if sample else None

    def is_outsider(self, rank: int) -> bool:
        """Return whether a member of a group is no rank of the lab."""
        return not 0 <= rank < self.size

    def is_still(self, rank: int) -> bool:
        """Return whether no data is on its way to a rank or from it."""
        if rank in self.dead:
            return True
        sample = self.samples.get(rank)
        return sample is not None and sample.still


@dataclass(frozen=True)
class Need:
    """What one wait needs.

    ``missing`` have not provided it, and ``enough`` of them have to come (all if None). Where
    ``uncertain``, it may also be on its way already, from any of ``partners``. ``conflict`` says
    that another rank has provided something else in its place. ``crossed`` says that everybody has
    come, over connections that another group of the same name may have taken. A ``doubt`` says what
    else could end the wait, or why everybody may have come and still be blocked.
    """

    missing: frozenset[int] = frozenset()
    partners: frozenset[int] = frozenset()
    enough: int | None = None
    uncertain: bool = False
    conflict: bool = False
    crossed: bool = False
    doubt: str = ""


def needs(situation: Situation, rank: int, wait: Wait) -> list[Need]:
    """Return what a wait needs: one entry for each thing that it may be waiting for (all of them in
    "device", unless it is partial)."""
    if wait.kind == "init":
        return [_init(situation, rank, wait)]
    if wait.kind == "thread":
        return [Need(frozenset({rank}))]
    if wait.kind in ("store", "unknown"):
        return [Need(frozenset(range(situation.size)), enough=1, doubt=wait.doubt)]
    if wait.kind == "device":
        options = _first_of_each(wait.options) if wait.partial else wait.options
        return [
            *(_collective(situation, rank, wait, key, n) for key, n in options),
            *(_message(situation, rank, message) for message in wait.messages),
        ]
    if wait.kind in ("send", "recv", "recv_any"):
        ends = (Message(wait.kind, key, n, wait.peer, wait.tag) for key, n in wait.options)
        return [_message(situation, rank, end) for end in ends]
    kinds = {
        "collective": _collective,
        "monitored_barrier": _monitored_barrier,
        "new_group": _new_group,
    }
    return [kinds[wait.kind](situation, rank, wait, key, n) for key, n in wait.options]


def _first_of_each(options: Iterable[tuple[GroupKey, int]]) -> Iterator[tuple[GroupKey, int]]:
    """Yield the oldest collective of each group: a device does them one after the other."""
    oldest: dict[GroupKey, int] = {}
    for key, number in options:
        oldest[key] = min(number, oldest.get(key, number))
    yield from oldest.items()


def _collective(s: Situation, rank: int, wait: Wait, key: GroupKey, number: int) -> Need:
    others = frozenset(key[1]) - {rank}
    if not others:
        return Need()
    own = _entry(s, rank, key, number)
    missing, conflict, uncertain = set(), False, False
    fits, over = own is not None, False
    for other in others:
        group = s.group(other, key)
        if group is None or group.last < number:
            missing.add(other)
            uncertain = uncertain or (group is not None and group.last < 0)
            continue
        entry = _entry(s, other, key, number)
        if own and (disagree(own, entry) or _split_apart(own, entry, key, rank, other)):
            # Both stand at this number with different calls: neither will make the other's.
            conflict = conflict or _stands_at(s.samples[other], key, number)
            # Nor will one that has begun another collective and gone on, where each needs all.
            conflict = conflict or (own.name in PLAIN and _is_under_way(own, entry))
        fits = fits and own is not None and _fit(own, entry, key, rank, other)
        over = over or (entry is not None and entry.done)
    if not missing and (strangers := crossed_with(s, rank, key)):
        return Need(partners=others | strangers, conflict=conflict, crossed=True)
    if not missing and not fits:
        unsure = "everybody has come, but labkit cannot see whether the calls fit"
        return Need(partners=others, conflict=conflict, doubt=unsure)
    lost = _in_the_way(s, key, others | {rank})
    if not missing and lost:
        return Need(partners=others | {rank}, conflict=conflict, doubt=lost)
    if not missing and over:
        # Elsewhere it is over, perhaps by an error: what is to come from there has been sent.
        doubt = "everybody has come, and it is over on other ranks, but nothing is on its way"
        return Need(partners=others | {rank}, conflict=conflict, doubt=doubt)
    if own is None or own.name not in ROOTED:
        return Need(frozenset(missing), others, uncertain=uncertain, conflict=conflict)
    known = wait.root if own.root is None else own.root
    root = None if uncertain else known
    return _rooted(rank, root, own.name, frozenset(missing), others, conflict)


def _is_under_way(own: Entry, other: Entry | None) -> bool:
    """Whether another rank has begun another collective, which is not over: with asynchronous
    calls it may stand elsewhere."""
    return other is not None and other.name != own.name and not other.done


def _stands_at(sample: Sample, key: GroupKey, number: int) -> bool:
    """Return whether a rank, or a thread of it, waits for a collective that it has issued."""
    waits = (sample.wait, *(issuer.wait for issuer in sample.issuers))
    return any(wait is not None and (key, number) in wait.options for wait in waits)


def _rooted(
    rank: int, root: int | None, name: str, missing: frozenset[int], others: frozenset[int],
    conflict: bool,
) -> Need:  # fmt: skip
    if root == rank and name != "broadcast":
        return Need(missing, others, conflict=conflict)  # it gives to each, or takes from each
    if root in missing and root is not None and name != "reduce":
        return Need(frozenset({root}), others, conflict=conflict)
    return Need(missing, others, enough=1, uncertain=True, conflict=conflict)


def _entry(s: Situation, rank: int, key: GroupKey, number: int) -> Entry | None:
    group = s.group(rank, key)
    return group.entries.get(number) if group else None


def disagree(a: Entry | None, b: Entry | None) -> bool:
    """Return whether two ranks' calls under one number cannot be the same collective."""
    if a is None or b is None:
        return False
    if a.name != b.name:
        return True
    if a.root is not None and b.root is not None and a.root != b.root:
        return True
    return a.name in SAME_SIZE and (a.elements != b.elements or a.types != b.types)


def _fit(a: Entry, b: Entry | None, key: GroupKey, rank: int, other: int) -> bool:
    """Return whether two ranks' calls are certain to be the same collective."""
    if b is None:
        # Forgotten by the recorder of a rank that has gone far beyond: it has met it.
        return True
    if disagree(a, b):
        return False
    if a.name in PLAIN:
        return True
    if a.name in ROOTED:
        return a.root is not None and a.root == b.root
    if a.splits is None or b.splits is None:
        return a.splits == b.splits and a.elements == b.elements and a.types == b.types
    return not _split_apart(a, b, key, rank, other)


def _split_apart(a: Entry, b: Entry | None, key: GroupKey, rank: int, other: int) -> bool:
    """Return whether one rank gives the other more or less than that takes, or the other way."""
    if b is None or a.splits is None or b.splits is None:
        return False
    here, there = key[1].index(rank), key[1].index(other)
    to, back = _part(a.splits[0], there), _part(b.splits[1], here)
    return to != back or _part(b.splits[0], here) != _part(a.splits[1], there)


def _part(splits: tuple[int, ...], place: int) -> int:
    return splits[place] if place < len(splits) else -1


def _monitored_barrier(s: Situation, rank: int, wait: Wait, key: GroupKey, number: int) -> Need:
    others = frozenset(key[1]) - {rank}
    groups = {other: s.group(other, key) for other in others}
    missing = {other for other, g in groups.items() if g is None or g.barriers < number}
    return Need(frozenset(missing), others)


# -- messages -----------------------------------------------------------------------------------


def _message(s: Situation, rank: int, end: Message) -> Need:
    kinds = {"send": _send, "recv": _recv, "recv_any": _recv_any}
    return kinds[end.kind](s, rank, end)


def _posted(s: Situation, rank: int, key: GroupKey, kind: str, peer: int, tag: int) -> int:
    group = s.group(rank, key)
    return group.posted.get((kind, peer, tag), 0) if group else 0


def _in_the_way(s: Situation, key: GroupKey, ranks: frozenset[int]) -> str:
    """Return which message between some ranks of a group lost its handle before anybody waited for
    it, "" if none did.

    If it had not gone out by then, gloo neither sends nor takes it any more; and what comes after
    it on the connection of its two ranks, whatever call that belongs to, stays behind it.
    """
    for rank in sorted(ranks):
        group = s.group(rank, key)
        for kind, peer, _, _ in sorted(group.dropped if group else ()):
            if peer in ranks or peer < 0:
                call = "isend" if kind == "send" else "irecv"
                return (
                    f"the handle of an {call} of rank {rank} was dropped, so its message may be "
                    "lost, and what comes after it between the two ranks"
                )
    return ""


def _send(s: Situation, rank: int, end: Message) -> Need:
    key, peer = end.group, frozenset({end.peer})
    taken = _posted(s, end.peer, key, "recv", rank, end.tag)
    from_any = _posted(s, end.peer, key, "recv_any", -1, end.tag)
    if taken >= end.number:
        return Need(partners=peer, doubt=_in_the_way(s, key, peer | {rank}))
    # A receive from any may have taken another rank's message.
    return Need(peer, peer, uncertain=taken + from_any >= end.number)


def _recv(s: Situation, rank: int, end: Message) -> Need:
    key, peer = end.group, frozenset({end.peer})
    sent = _posted(s, end.peer, key, "send", rank, end.tag)
    if sent < end.number:
        return Need(peer, peer)
    if lost := _in_the_way(s, key, peer | {rank}):
        return Need(partners=peer, doubt=lost)
    # A receive from any of this rank may have taken the message.
    taken = _posted(s, rank, key, "recv_any", -1, end.tag) > 0
    return Need(peer if taken else frozenset(), peer, uncertain=taken)


def _recv_any(s: Situation, rank: int, end: Message) -> Need:
    key = end.group
    others = frozenset(key[1]) - {rank}
    sent = sum(_posted(s, other, key, "send", rank, end.tag) for other in others)
    asked = end.number + sum(_posted(s, rank, key, "recv", other, end.tag) for other in others)
    return Need(others, others, enough=1, uncertain=sent >= asked)


# -- meetings -----------------------------------------------------------------------------------


def _new_group(s: Situation, rank: int, wait: Wait, key: GroupKey, number: int) -> Need:
    """The members of the group have to come; all of the default group (``key``) where torch does
    not say which group it is, or lets all ranks meet. Torch names groups by counting them."""
    making = key if wait.making is None else wait.making
    others = frozenset(making[1]) - {rank}

    def has_come(other: int) -> bool:
        sample = s.samples.get(other)
        made = wait.number >= 0 and sample is not None and sample.made >= wait.number
        return made if wait.making is None else _is_in(s, other, making)

    missing = frozenset(r for r in others if not has_come(r))
    strangers = crossed_with(s, rank, making)
    if missing & strangers:  # they made another one in its place, and go on from there
        return Need(missing, others, conflict=True)
    if strangers and not missing:
        return Need(partners=others | strangers, crossed=True)
    past = {r for r in missing if r in s.samples and 0 <= wait.number <= s.samples[r].made}
    if certain := missing - past:
        return Need(certain, others)
    if past:
        # It has made another group under this number; or this one, and has left it again.
        doubt = f"rank {min(past)} has made as many groups, perhaps this one among them"
        return Need(missing, others, doubt=doubt)
    return Need(missing, others)


def crossed_with(s: Situation, rank: int, key: GroupKey) -> frozenset[int]:
    """Return the ranks that made another group where a rank made this one.

    Torch names the groups of ``new_group`` by counting them. Ranks of one world that each make only
    their own give one name to different groups; under that name they find each other's addresses
    in the store, so that connections of the two groups get crossed.
    """
    name, members = key
    world = _world(s.samples.get(rank))
    if name == _WORLD or world is None:
        return frozenset()
    others = {other: s.samples[other] for other in world if other in s.samples and other != rank}
    return frozenset(
        other
        for other, sample in others.items()
        if _world(sample) == world
        and any(its == name and set(ranks) != set(members) for its, ranks in groups_of(sample))
    )


#: The name of the default group.
_WORLD = "0"


def _world(sample: Sample | None) -> tuple[int, ...] | None:
    """Return the members of a rank's default group."""
    names = () if sample is None else sample.groups
    return next((ranks for name, ranks in names if name == _WORLD), None)


def groups_of(sample: Sample) -> set[GroupKey]:
    """Return the groups that a rank has made, and the one that it makes right now."""
    wait = sample.wait
    making = {wait.making} if wait is not None and wait.making is not None else set()
    return {*sample.groups, *making}


def _is_in(s: Situation, rank: int, key: GroupKey) -> bool:
    """Return whether a rank has made a group, or makes it right now."""
    sample = s.samples.get(rank)
    if sample is None:
        return False
    return key in sample.groups or (sample.wait is not None and sample.wait.making == key)


def _init(s: Situation, rank: int, wait: Wait) -> Need:
    """As many ranks as ``world_size`` have to come, whichever they are, to one address."""
    meeting = {
        r: sample.wait
        for r, sample in s.samples.items()
        if sample.wait and sample.wait.kind == "init"
    }
    joined = {r for r, sample in s.samples.items() if sample.joined}
    mates = {r for r, w in meeting.items() if not (w.at and wait.at) or w.at == wait.at}
    numbers = {meeting[r].me if meeting[r].me >= 0 else -2 - r for r in mates}
    size = wait.size if wait.size > 0 else s.size
    lacking = size - len(joined) - len(numbers)
    if len({meeting[r].size for r in mates}) > 1:
        doubt = "the ranks gave different world sizes, and other processes may have the same"
        return Need(partners=frozenset(mates) - {rank}, doubt=doubt)
    if lacking <= 0 and joined:
        # They may have joined this group a moment ago, or be in an older one still.
        doubt = "other ranks are in a group already, perhaps an older one"
        return Need(partners=frozenset(joined | mates) - {rank}, doubt=doubt)
    if lacking <= 0:
        return Need()
    outside = frozenset(range(s.size)) - joined - mates
    doubt = ""
    if len(mates) < len(meeting):
        doubt = "the ranks name different addresses, and other processes may come there"
    elif len(numbers) < len(mates):
        doubt = "ranks gave the same number, and other processes may have the ones that lack"
    elif size != s.size or outside & s.not_asked:
        doubt = "a process that is no rank of this lab may join the group"
    # Whoever lacks beyond the ranks that are here would be a process from outside.
    strangers = {s.size} if lacking > len(outside) else set()
    return Need(outside | strangers, enough=lacking, doubt=doubt)
