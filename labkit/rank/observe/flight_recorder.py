"""Read torch's flight recorder: which collectives this rank has issued, and which are pending.

The recorder numbers the collectives of a group from 1; ranks match them by that number. It keeps
the last ``record.RECORDER_SIZE`` entries, and answers while the rank is blocked.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping

import torch.distributed as dist

from ...wire.samples import Entry, Group, GroupKey
from ..torch_internals import groups as torch_groups
from ..torch_internals import names, recorder
from ..torch_internals.groups import ProcessGroup
from ..torch_internals.recorder import Issued
from . import call_details, p2p_record

#: Entries of a group that an answer carries, beside the pending ones.
RECENT = 4
NCCL = "nccl"
#: Ends the name of gloo's part of a group that has NCCL too.
PART = " (gloo)"


def _backends() -> list[str]:
    """Return which recorders to ask: every backend has its own."""
    found = {name for g in torch_groups.members() for name in torch_groups.backends(g)}
    return [name for name in ("gloo", NCCL) if name in found]


def is_recording() -> bool:
    """Return whether there is a recorder: torch may hide it, the user may have switched it off."""
    return names.is_on("collectives") and not recorder.switched_off()


def _belongs(entry: Issued, births: dict[str, int]) -> bool:
    """Return whether an entry is of a group of today: a name comes again after
    ``destroy_process_group``."""
    born = births.get(entry.group)
    return born is not None and entry.created >= born and not entry.is_message


def _births() -> dict[str, int]:
    return {g.group_name: p2p_record.born.get(g, 0) for g in torch_groups.members()}


def entries() -> list[Issued]:
    """Return what the recorder has on the groups of today, oldest first; nothing if torch hides
    the recorder."""
    if not dist.is_initialized() or not names.is_on("collectives"):
        return []
    births, parts, backends = _births(), _parts(), _backends()
    found: list[Issued] = []
    for backend in backends:
        own = [e for e in recorder.read(backend) if _belongs(e, births)]
        if len(backends) > 1:  # an older torch has one recorder for all
            own = [e for e in own if e.backend == backend]
        found += [e._replace(group=parts.get((e.group, backend), e.group)) for e in own]
    return found


def _parts() -> dict[tuple[str, str], str]:
    """Return by what name each backend's part of a group is known, by group and backend.

    Where a group has two, the part of gloo has a name of its own: each numbers its collectives.
    """
    out = {}
    for group in torch_groups.members():
        name = str(group.group_name)
        for i, backend in enumerate(torch_groups.backends(group)):
            out[name, backend] = name + (PART if i else "")
    return out


def home_of(part: str) -> str:
    """Return the name of the group that a part of it is known by in torch."""
    return part.removesuffix(PART)


def key(group: ProcessGroup, ranks: Mapping[int, int]) -> GroupKey:
    """Return by what all ranks know a group, from its members' ranks in the world and in it."""
    return group.group_name, tuple(sorted(ranks, key=ranks.__getitem__))


def keys() -> dict[str, GroupKey]:
    """Return the keys of this rank's groups, and of parts of them, by name."""
    known = {str(g.group_name): key(g, ranks) for g, ranks in torch_groups.members().items()}
    parts = {part: (part, known[group][1]) for (group, _), part in _parts().items()}
    return known | parts


def pending(
    operation: int | None = None, home: str | None = None
) -> tuple[tuple[GroupKey, int], ...]:
    """List the collectives that this rank has issued and that have not finished, as (group,
    number): those with the sequence number ``operation`` (which counts messages too) in the
    group ``home``, where these are given.
    """
    known = keys()
    return tuple(
        (known[e.group], e.number)
        for e in entries()
        if not e.done and operation in (None, e.own) and home in (None, home_of(e.group))
    )


def groups() -> dict[GroupKey, Group]:
    """Describe every group that this rank is in, with what was issued there."""
    if not dist.is_initialized():
        return {}
    by_name: dict[str, list[Issued]] = {}
    for entry in entries():
        by_name.setdefault(entry.group, []).append(entry)
    out, parts = {}, _parts()
    for group, ranks in torch_groups.members().items():
        for backend in torch_groups.backends(group):
            part = parts[group.group_name, backend]
            found = (part, key(group, ranks)[1])
            out[found] = _part(group, backend, found, by_name.get(part, []))
    return out


def _part(group: ProcessGroup, backend: str, part: GroupKey, own: list[Issued]) -> Group:
    """Describe the part of a group that one backend serves; messages are those of the first."""
    name, members = part
    shown = [e for e in own[:-RECENT] if not e.done] + own[-RECENT:]
    entries = {e.number: _entry(e, group, members) for e in shown}
    last = _last(group, own, backend)
    if home_of(name) != name:
        return Group(key=part, last=last, entries=entries, posted={}, barriers=0)
    # Copies: the main thread adds to both.
    posted, dropped = _posted(group), p2p_record.dropped.get(group)
    world = (*members, -1)  # of a peer, its rank in the world; -1 is any
    return Group(
        key=part,
        last=last,
        entries=entries,
        posted={(kind, world[peer], tag): count for (kind, peer, tag), count in posted.items()},
        barriers=p2p_record.barriers.get(group, 0),
        sizes={
            (kind, world[peer], tag, number): size
            for (kind, peer, tag, number), size in call_details.sizes_of(group, RECENT).items()
        },
        dropped=frozenset(
            (kind, world[peer], tag, number)
            for kind, peer, tag, number in (dropped.copy() if dropped else ())
        ),
    )


def _posted(group: ProcessGroup) -> Counter[tuple[str, int, int]]:
    """Count the messages that this rank has posted in a group, by kind, peer and tag; also the one
    whose call holds it: the peer's call may be waiting for it as this one does."""
    counted = Counter(dict(p2p_record.posted.get(group) or {}))  # the main thread adds to it
    under_way = list(p2p_record.being_posted(group))
    if under_way and held():
        counted.update(under_way)
    return counted


def last_of(name: str) -> int:
    """Return the number of the newest collective of a group, by its name; 0 if there is none."""
    own = {str(g.group_name): g for g in torch_groups.members()}
    by_name = [e for e in entries() if e.group == name]
    if name not in own:
        return 0
    return max(0, _last(own[name], by_name, torch_groups.backends(own[name])[0]))


def _last(group: ProcessGroup, own: list[Issued], backend: str) -> int:
    if own:
        return own[-1].number
    if len(torch_groups.backends(group)) > 1:
        group = torch_groups.part(group, backend)
    if backend == NCCL:  # its counter counts nothing but collectives
        issued = torch_groups.issued(group)
        return -1 if issued is None else issued
    # The group's own counter counts messages too, and the parts of monitored barriers.
    issued = torch_groups.issued(group)
    messages = sum((p2p_record.posted.get(group) or Counter()).values())
    if issued is not None and not is_recording():  # enough to see who is out of step
        return issued - messages
    return 0 if issued == messages else -1


def _entry(entry: Issued, group: ProcessGroup, members: tuple[int, ...]) -> Entry:
    call = (call_details.calls.get(group) or {}).get((entry.backend, entry.own))
    root = None if call is None or call.root is None else members[call.root]
    return Entry(
        number=entry.number,
        name=entry.name.rpartition(":")[2],
        shapes=tuple(map(tuple, entry.shapes)),
        types=tuple(entry.types),
        done=entry.done,
        root=root,
        splits=None if call is None else call.splits,
        where=call_details.describe(None if call is None else call.place)[0],
    )


# -- what NCCL has on its queue -------------------------------------------------------------------


def list_queued() -> list[Issued]:
    """Return what this rank has given to NCCL and NCCL has not finished, oldest first: messages
    too."""
    if not dist.is_initialized() or not names.is_on("collectives") or NCCL not in _backends():
        return []
    births = _births()
    own = [e for e in recorder.read(NCCL) if e.created >= births.get(e.group, sys.maxsize)]
    own = [e for e in own if e.backend == NCCL]
    return [e for e in recorder.close_batches(own) if not e.done]


def held() -> int:
    """Return the operation that this rank is giving to NCCL in a call that does not return: NCCL
    connects with ranks that have not come. 0 if there is none."""
    return _held(list_queued())


def progress() -> tuple[int, ...]:
    """Count what NCCL has not finished, and say which operation holds this rank."""
    queued = list_queued()
    return len(queued), _held(queued)


def _held(queued: list[Issued]) -> int:
    return next((e.operation for e in reversed(queued) if e.held), 0)


def queued_collectives() -> list[tuple[GroupKey, int]]:
    """List the collectives that NCCL has not finished, as (group, number)."""
    known = keys()
    return [(known[e.group], e.number) for e in list_queued() if not e.is_message]


def queued_messages() -> list[p2p_record.Message]:
    """List the sends and receives that NCCL has not finished.

    The recorder does not number them per peer as :mod:`.p2p_record` does, so they are counted
    from the last one backwards.
    """
    found = []
    for group, own in _by_group(list_queued()).items():
        left = _posted(group)
        for entry in reversed(own):
            if (read := recorder.read_message(entry)) is not None:
                kind, me, peer = read
                end = (kind, peer, p2p_record.NO_TAG)
                found.append(p2p_record.Message(group.group_name, *end, left[end], me))
                left[end] -= 1
    return found[::-1]


def _by_group(queued: list[Issued]) -> dict[ProcessGroup, list[Issued]]:
    found = {g: [e for e in queued if e.group == g.group_name] for g in torch_groups.members()}
    return {group: own for group, own in found.items() if own}
