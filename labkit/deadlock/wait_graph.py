"""Find the ranks that can never go on.

What a rank has provided (collectives issued, messages posted) only grows. A rank can go on if
it does not wait, or if everything it waits for has been provided or can still be by a rank that
can go on itself. The ranks for which that does not hold, taken as the least fixed point, wait in
vain: not because a time is over but because nobody is left who could come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..wire.protocol import ROOTED
from ..wire.samples import Entry, Group, GroupKey, Sample, Wait

#: In these, every rank brings as many elements as the others.
SAME_SIZE = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather")


@dataclass(frozen=True)
class Situation:
    """What is known of all ranks at one moment.

    Ranks that are neither sampled nor gone may do anything: they can go on.
    """

    size: int
    samples: Mapping[int, Sample]
    gone: frozenset[int] = frozenset()  #: ended their cell, were not asked to run it, or died
    dead: frozenset[int] = frozenset()  #: those of them whose process ended

    def group(self, rank: int, key: GroupKey) -> Group | None:
        sample = self.samples.get(rank)
        return sample.groups.get(key) if sample else None

    def is_still(self, rank: int) -> bool:
        """Tell whether nothing runs in a rank's process: what it provided has gone out."""
        if rank in self.dead:
            return True
        sample = self.samples.get(rank)
        return sample is not None and sample.still


@dataclass(frozen=True)
class Need:
    """What one wait needs.

    ``missing`` have not provided it, and ``enough`` of them have to come (all if None). Where
    ``uncertain``, it may also be on its way already, from any of ``partners``. ``conflict`` says
    that another rank has provided something else in its place.
    """

    missing: frozenset[int]
    partners: frozenset[int] = frozenset()
    enough: int | None = None
    uncertain: bool = False
    conflict: bool = False


def find_stuck(situation: Situation) -> set[int]:
    """Return the ranks that wait for something that nobody can provide any more."""
    samples = situation.samples
    waiting = {r: s.wait for r, s in samples.items() if s.wait and s.still}
    # One that ended and does not answer may have provided anything before.
    gone = {r for r in situation.gone if r in samples or r in situation.dead}
    held = gone | waiting.keys()
    while True:
        free = {
            rank
            for rank, wait in waiting.items()
            if rank in held and _may_go_on(needs(situation, rank, wait), held, situation)
        }
        if not free:
            return held & waiting.keys()
        held -= free


def _may_go_on(options: list[Need], held: set[int], situation: Situation) -> bool:
    return not options or any(_possible(need, held, situation) for need in options)


def _possible(need: Need, held: set[int], situation: Situation) -> bool:
    if need.conflict:
        return False
    if need.missing:
        able = len(need.missing - held)
        if able >= (len(need.missing) if need.enough is None else need.enough):
            return True
        if not need.uncertain:
            return False
    # All may have come and still it waits. While anything runs, data may be on its way; when
    # all stand still, it never arrives: they disagree about shapes, types or the root.
    return not all(situation.is_still(rank) for rank in need.partners)


def needs(situation: Situation, rank: int, wait: Wait) -> list[Need]:
    """Say what a wait needs: one entry for each thing that it may be waiting for."""
    if wait.kind == "init":
        return [_init(situation, wait)]
    if wait.kind == "new_group":
        return [_new_group(situation, rank, wait)]
    kinds = {
        "collective": _collective,
        "monitored_barrier": _monitored_barrier,
        "send": _send,
        "recv": _recv,
        "recv_any": _recv_any,
    }
    return [kinds[wait.kind](situation, rank, wait, key, n) for key, n in wait.options]


def _collective(s: Situation, rank: int, wait: Wait, key: GroupKey, number: int) -> Need:
    others = frozenset(key[1]) - {rank}
    own = _entry(s, rank, key, number)
    missing, conflict, uncertain = set(), False, False
    for other in others:
        group = s.group(other, key)
        if group is None or group.last < number:
            missing.add(other)
            uncertain = uncertain or (group is not None and group.last < 0)
        elif own and disagree(own, _entry(s, other, key, number)):
            # Both stand at this number with different calls: neither will make the other's.
            sample = s.samples[other]
            there = bool(sample.wait) and (key, number) in sample.wait.options  # type: ignore[union-attr]
            conflict = conflict or there
    if own is None or own.name not in ROOTED:
        return Need(frozenset(missing), others, uncertain=uncertain, conflict=conflict)
    root = None if uncertain else wait.root
    return _rooted(rank, root, own.name, frozenset(missing), others, conflict)


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
    return a.name in SAME_SIZE and (a.elements != b.elements or a.types != b.types)


def _monitored_barrier(s: Situation, rank: int, wait: Wait, key: GroupKey, number: int) -> Need:
    others = frozenset(key[1]) - {rank}
    groups = {other: s.group(other, key) for other in others}
    missing = {other for other, g in groups.items() if g is None or g.barriers < number}
    return Need(frozenset(missing), others)


def _posted(s: Situation, rank: int, key: GroupKey, kind: str, peer: int, tag: int) -> int:
    group = s.group(rank, key)
    return group.posted.get((kind, peer, tag), 0) if group else 0


def _send(s: Situation, rank: int, wait: Wait, key: GroupKey, number: int) -> Need:
    peer = frozenset({wait.peer})
    taken = _posted(s, wait.peer, key, "recv", rank, wait.tag)
    from_any = _posted(s, wait.peer, key, "recv_any", -1, wait.tag)
    if taken >= number:
        return Need(frozenset(), peer)
    # A receive from any may have taken another rank's message.
    return Need(peer, peer, uncertain=taken + from_any >= number)


def _recv(s: Situation, rank: int, wait: Wait, key: GroupKey, number: int) -> Need:
    peer = frozenset({wait.peer})
    if _posted(s, wait.peer, key, "send", rank, wait.tag) < number:
        return Need(peer, peer)
    # A receive from any of this rank may have taken the message.
    taken = _posted(s, rank, key, "recv_any", -1, wait.tag) > 0
    return Need(peer if taken else frozenset(), peer, uncertain=taken)


def _recv_any(s: Situation, rank: int, wait: Wait, key: GroupKey, number: int) -> Need:
    others = frozenset(key[1]) - {rank}
    sent = sum(_posted(s, other, key, "send", rank, wait.tag) for other in others)
    asked = number + sum(_posted(s, rank, key, "recv", other, wait.tag) for other in others)
    return Need(others, others, enough=1, uncertain=sent >= asked)


def _new_group(s: Situation, rank: int, wait: Wait) -> Need:
    others = frozenset(range(s.size)) - {rank}
    missing = {r for r in others if r not in s.samples or s.samples[r].made < wait.number}
    # Connecting takes its time, all standing still (names are looked up): no proof without one.
    return Need(frozenset(missing), _NOBODY_IS_STILL)


def _init(s: Situation, wait: Wait) -> Need:
    """As many ranks as ``world_size`` have to come, whichever they are."""
    come = {
        r
        for r, sample in s.samples.items()
        if sample.joined or (sample.wait and sample.wait.kind == "init")
    }
    size = wait.size if wait.size > 0 else s.size
    lacking = size - len(come)
    outside = frozenset(range(s.size)) - come
    if lacking <= 0:
        return Need(frozenset(), _NOBODY_IS_STILL)
    return Need(outside, enough=lacking, conflict=lacking > len(outside))


#: Partners of waits that are never called vain once everybody has come.
_NOBODY_IS_STILL = frozenset({-1})
