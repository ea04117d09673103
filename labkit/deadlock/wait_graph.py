"""Find the ranks that can never go on, and those that cannot as far as can be seen.

The model is a wait-for graph of AND and OR (Chandy, Misra and Haas, 1983): a rank is a set of
issuers (its main thread, and whatever else of it may issue calls), and a wait needs all or some
of other ranks to provide something. What a rank has provided (collectives issued, messages
posted) only grows. A rank can provide more if one of its issuers can go on; an issuer can go on if
nothing holds it, or if everything that it waits for has been provided or can still be. What that
leaves, as the least fixed point, waits in vain: not because a time is over but because nobody is
left who could come. ``labkit/deadlock/THEORY.md`` says why.

There are two readings of what labkit cannot see into (a thread of the user's, an agent of RPC,
another process in the world). In one it may do anything: what is stuck then is *proved*. In the
other it does nothing: what is stuck only then is *suspected*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..wire.protocol import ROOTED
from ..wire.samples import Entry, Group, GroupKey, Issuer, Message, Sample, Wait

#: In these, every rank brings as many elements as the others.
SAME_SIZE = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather")
#: Collectives of which shapes, types and a root that fit are all there is to fit.
PLAIN = ("all_reduce", "all_gather", "reduce_scatter", "barrier")
ROOT_KNOWN = ("broadcast", "reduce", "gather", "scatter")


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
        """Tell whether a member of a group is no rank of the lab."""
        return not 0 <= rank < self.size

    def is_still(self, rank: int) -> bool:
        """Tell whether no data is on its way to a rank or from it."""
        if rank in self.dead:
            return True
        sample = self.samples.get(rank)
        return sample is not None and sample.still


@dataclass(frozen=True)
class Verdict:
    """Which ranks wait in vain: for certain, and by all that can be seen."""

    proved: frozenset[int] = frozenset()
    suspected: frozenset[int] = frozenset()  #: these and the proved ones
    doubts: tuple[str, ...] = ()  #: why the others are not proved


@dataclass(frozen=True)
class Need:
    """What one wait needs.

    ``missing`` have not provided it, and ``enough`` of them have to come (all if None). Where
    ``uncertain``, it may also be on its way already, from any of ``partners``. ``conflict`` says
    that another rank has provided something else in its place. A ``doubt`` says what else could
    end the wait, or why everybody may have come in vain.
    """

    missing: frozenset[int] = frozenset()
    partners: frozenset[int] = frozenset()
    enough: int | None = None
    uncertain: bool = False
    conflict: bool = False
    doubt: str = ""


def judge(situation: Situation) -> Verdict:
    """Find the ranks that wait in vain, in both readings of what cannot be seen."""
    suspected = _Reading(situation, trusting=True)
    if not suspected.stuck():
        return Verdict()
    proved = _Reading(situation, trusting=False)
    doubts = dict.fromkeys([*proved.doubts(suspected.held), *_blindness(situation)])
    found = frozenset() if _blindness(situation) else frozenset(proved.stuck())
    return Verdict(found, frozenset(suspected.stuck()), tuple(doubts))


def find_stuck(situation: Situation) -> set[int]:
    """Return the ranks that are proved to wait in vain."""
    return set(judge(situation).proved)


def _blindness(situation: Situation) -> list[str]:
    """Say what cannot be seen at all on some rank: nothing is proved with a blind eye."""
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
        """Tell whether a rank can provide more than it has."""
        if rank in self.situation.dead:
            return False
        if self.situation.is_outsider(rank) and self.trusting and self._knows_all():
            return False
        return rank not in self.free or bool(self.free[rank])

    def _knows_all(self) -> bool:
        """Tell whether every rank of the lab has answered: a member that is none of them is no
        rank of the lab."""
        s = self.situation
        return all(r in s.samples or r in s.dead for r in range(s.size))

    def stuck(self) -> set[int]:
        """Return the ranks whose main thread waits in vain."""
        return {rank for rank, place in self.held if place < 0}

    def _may_go_on(self, node: Node, wait: Wait) -> bool:
        if wait.doubt and not self.trusting:
            return True
        wanted = needs(self.situation, node[0], wait)
        possible = (self._possible(need, node[0]) for need in wanted)
        if wait.kind == "device":
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
        elif not need.doubt:
            return True  # everybody has come, with calls that fit: however slow the way is
        # It is on its way, or never arrives: that shows when nothing is on its way anywhere. What
        # has come is in this rank's own queues until somebody reads it.
        return not all(map(self.situation.is_still, need.partners | {rank}))

    def doubts(self, held: Mapping[Node, Wait]) -> list[str]:
        """Say what lets issuers go on here that are ``held`` in the trusting reading."""
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
    return wait, "" if wait is not None else issuer.name


# -- what a wait needs --------------------------------------------------------------------------


def needs(situation: Situation, rank: int, wait: Wait) -> list[Need]:
    """Say what a wait needs: one entry for each thing that it may be waiting for (all of them
    in "device")."""
    if wait.kind == "init":
        return [_init(situation, rank, wait)]
    if wait.kind == "thread":
        return [Need(frozenset({rank}))]
    if wait.kind in ("store", "unknown"):
        return [Need(frozenset(range(situation.size)), enough=1, doubt=wait.doubt)]
    if wait.kind == "device":
        return [
            *(_collective(situation, rank, wait, key, n) for key, n in wait.options),
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
        fits = fits and own is not None and _fit(own, entry, key, rank, other)
        over = over or (entry is not None and entry.done)
    if not missing and not fits:
        unsure = "everybody has come, but labkit cannot see whether the calls fit"
        return Need(partners=others, conflict=conflict, doubt=unsure)
    if not missing and over:
        # Elsewhere it is over, perhaps by an error: what is to come from there has been sent.
        doubt = "everybody has come, and it is over on other ranks, but nothing is on its way"
        return Need(partners=others | {rank}, conflict=conflict, doubt=doubt)
    if own is None or own.name not in ROOTED:
        return Need(frozenset(missing), others, uncertain=uncertain, conflict=conflict)
    known = wait.root if own.root is None else own.root
    root = None if uncertain else known
    return _rooted(rank, root, own.name, frozenset(missing), others, conflict)


def _stands_at(sample: Sample, key: GroupKey, number: int) -> bool:
    """Tell whether a rank, or a thread of it, waits for a collective that it has issued."""
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
    """Tell whether two ranks' calls under one number cannot be the same collective."""
    if a is None or b is None:
        return False
    if a.name != b.name:
        return True
    if a.root is not None and b.root is not None and a.root != b.root:
        return True
    return a.name in SAME_SIZE and (a.elements != b.elements or a.types != b.types)


def _fit(a: Entry, b: Entry | None, key: GroupKey, rank: int, other: int) -> bool:
    """Tell whether two ranks' calls are certain to be the same collective."""
    if b is None:
        # Forgotten by the recorder of a rank that has gone far beyond: it has met it.
        return True
    if disagree(a, b):
        return False
    if a.name in PLAIN:
        return True
    if a.name in ROOT_KNOWN:
        return a.root is not None and a.root == b.root
    if a.splits is None or b.splits is None:
        return a.splits == b.splits and a.elements == b.elements and a.types == b.types
    return not _split_apart(a, b, key, rank, other)


def _split_apart(a: Entry, b: Entry | None, key: GroupKey, rank: int, other: int) -> bool:
    """Tell whether one rank gives the other more or less than that takes, or the other way."""
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


def _lost(s: Situation, rank: int, key: GroupKey, kind: str, peer: int, tag: int) -> int:
    """Count the messages of a rank whose handle was dropped: they may never go out."""
    group = s.group(rank, key)
    return sum(m[:3] == (kind, peer, tag) for m in group.dropped) if group else 0


def _send(s: Situation, rank: int, end: Message) -> Need:
    key, peer = end.group, frozenset({end.peer})
    taken = _posted(s, end.peer, key, "recv", rank, end.tag)
    from_any = _posted(s, end.peer, key, "recv_any", -1, end.tag)
    if taken >= end.number:
        if taken - _lost(s, end.peer, key, "recv", rank, end.tag) < end.number:
            return Need(partners=peer, doubt=_dropped("irecv", end.peer))
        return Need(partners=peer)
    # A receive from any may have taken another rank's message.
    return Need(peer, peer, uncertain=taken + from_any >= end.number)


def _recv(s: Situation, rank: int, end: Message) -> Need:
    key, peer = end.group, frozenset({end.peer})
    sent = _posted(s, end.peer, key, "send", rank, end.tag)
    if sent < end.number:
        return Need(peer, peer)
    if sent - _lost(s, end.peer, key, "send", rank, end.tag) < end.number:
        return Need(partners=peer, doubt=_dropped("isend", end.peer))
    # A receive from any of this rank may have taken the message.
    taken = _posted(s, rank, key, "recv_any", -1, end.tag) > 0
    return Need(peer if taken else frozenset(), peer, uncertain=taken)


def _dropped(call: str, rank: int) -> str:
    return f"the handle of an {call} of rank {rank} was dropped, so its message may be lost"


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
    past = {r for r in missing if r in s.samples and 0 <= wait.number <= s.samples[r].made}
    if certain := missing - past:
        return Need(certain, others)
    if past:
        # It has made another group under this number; or this one, and has left it again.
        doubt = f"rank {min(past)} has made as many groups, perhaps this one among them"
        return Need(missing, others, doubt=doubt)
    return Need(missing, others)


def _is_in(s: Situation, rank: int, key: GroupKey) -> bool:
    """Tell whether a rank has made a group, or makes it right now."""
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
