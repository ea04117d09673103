"""Tell the notebook at the end of a cell what this rank has sent, received and issued in it.

Gloo takes a message that is shorter than its receive's tensor for a complete one, and the bytes of
any type for those of its own. Both ends are known in the notebook only, which would have to ask
for them after every cell; so a rank that has posted some says so by itself, and all others cost
nothing.

Ranks match the collectives of a group by their numbers. Gloo counts messages too, so the number of
a note (``collective_notes``) is what its Work has, less the messages posted before. Numbers that
nobody has noted are of what torch issued in C++, as DDP's backward does; then alone the recorder
is read, which takes a millisecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from ...wire.encoding import encode
from ...wire.protocol import COLLECTIVES, MESSAGES
from ...wire.samples import TYPES, UNKNOWN, UNSEEN, Calls, CellCalls, Group, GroupKey, Kind, Sample
from .. import quiet, tracebacks
from ..torch_internals import collectives as torch_collectives
from ..torch_internals import groups, names
from ..torch_internals.groups import ProcessGroup
from ..torch_internals.recorder import Issued
from . import call_details, collective_notes, flight_recorder, p2p_record
from .collective_notes import KEPT, Note

#: group -> backend -> operations that it had counted when the cell began, and how many of these
#: are no collectives
_began: WeakKeyDictionary[ProcessGroup, dict[str, tuple[int, int]]] = WeakKeyDictionary()


def begin() -> None:
    """Forget what was posted and issued before."""
    call_details.fresh.clear()
    _begin_collectives()


def publish() -> None:
    """Display the messages since ``begin`` for the notebook, if there are any; let the reply tell
    of the collectives: most cells have some, and a display would cost two more messages."""
    if not dist.is_initialized():
        return
    if call_details.fresh:
        told = Sample(dist.get_rank(), "idle", groups=_messages())
        tracebacks.get_shell().display_pub.publish({MESSAGES: encode(told)})
    if (calls := collectives_of_cell()) is not None:
        quiet.told[COLLECTIVES] = encode(calls)
    begin()


def _messages() -> dict[tuple[str, tuple[int, ...]], Group]:
    """Describe the newest messages of each group, and how many were posted with their tags."""
    found = {}
    for group, ranks in groups.members().items():
        if not (new := call_details.fresh.get(group, 0)):
            continue
        key = flight_recorder.key(group, ranks)
        members = (*key[1], -1)  # so that number -1, any rank, stays -1
        sizes = call_details.sizes_of(group, new)
        tags = {tag for _, _, tag, _ in sizes}
        posted = p2p_record.posted.get(group) or Counter()
        found[key] = Group(
            key=key,
            last=-1,
            entries={},
            posted={(k, members[p], t): n for (k, p, t), n in posted.items() if t in tags},
            barriers=0,
            sizes={(k, members[p], t, n): size for (k, p, t, n), size in sizes.items()},
        )
    return found


# -- collectives -----------------------------------------------------------------------------------


def _begin_collectives() -> None:
    """Record where the numbers of each group stand."""
    collective_notes.noted.clear()
    _began.clear()
    if names.is_on("collectives"):
        for group in groups.groups():
            _began[group] = {name: _counted(group, name) for name in groups.backends(group)}


def _counted(group: ProcessGroup, backend: str) -> tuple[int, int]:
    return groups.issued_by(group, backend), collective_notes.count_others(group, backend)


def collectives_of_cell() -> CellCalls | None:
    """Describe the newest collectives of each group since ``begin``, None if there are none."""
    if not names.is_on("collectives"):
        return None
    if not any(_has_new(g, name) for g in groups.groups() for name in groups.backends(g)):
        return None
    found = dict(_describe())
    return CellCalls(dist.get_rank(), found) if found else None


def _has_new(group: ProcessGroup, backend: str) -> bool:
    """Return whether a group has had collectives of a backend since ``begin``."""
    if backend in collective_notes.noted.get(group, ()):
        return True
    (was, less), (counted, now_less) = _before(group, backend), _counted(group, backend)
    return counted - was > (now_less - less) * (backend == groups.GLOO)


def _before(group: ProcessGroup, backend: str) -> tuple[int, int]:
    return _began.get(group, {}).get(backend, (0, 0))


def _describe() -> Iterator[tuple[GroupKey, Calls]]:
    recorded: list[Issued] | None = None
    for group, ranks in groups.members().items():
        for i, backend in enumerate(groups.backends(group)):
            if len(ranks) < 2 or not _has_new(group, backend):
                continue
            name, members = flight_recorder.key(group, ranks)
            part = name + (flight_recorder.PART if i else "")
            first, last, notes = _numbers(group, backend)
            kinds: dict[int, Kind] = {}
            # Parts of monitored barriers have numbers in the recorder, not as many on each rank.
            if len(notes) < min(last - first, KEPT) and not p2p_record.barriers.get(group):
                recorded = flight_recorder.entries() if recorded is None else recorded
                own = (e for e in recorded if e.group == part and first < e.number <= last)
                kinds = {e.number: _kind_of(e) for e in own}
            known = {note: _kind(note, members) for note in set(notes.values())}
            kinds |= {number: known[note] for number, note in notes.items()}
            if kinds:
                yield (part, members), _pack(first, last, kinds)


def _numbers(group: ProcessGroup, backend: str) -> tuple[int, int, dict[int, Note]]:
    """Return how many collectives a backend had in a group before the cell, how many it has now,
    and the notes by number."""
    counts_all = backend == groups.GLOO
    noted = collective_notes.noted.get(group, {}).get(backend)
    first, last = (
        operations - less * counts_all
        for operations, less in (_before(group, backend), _counted(group, backend))
    )
    notes = {
        operation - less * counts_all: note
        for operation, less, note in (noted.copy() if noted else ())
    }
    return first, last, notes


def _kind(note: Note, members: tuple[int, ...]) -> Kind:
    return Kind(
        name=note.name,
        backend=note.backend,
        types=tuple(map(_type_name, note.types)),
        elements=note.elements,
        order=note.order,
        gaps=note.gaps,
        op=note.op,
        root=members[note.root] if note.root >= 0 else -1,
        where=call_details.describe(note.place)[0],
        direct=note.direct,
    )


def _type_name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def _kind_of(entry: Issued) -> Kind:
    """Describe what torch issued in C++."""
    types = collective_notes.shorten(TYPES.get(name, name) for name in entry.types)
    name = entry.name.rpartition(":")[2]
    return Kind(torch_collectives.plain_name(name), entry.backend, types, order=UNKNOWN)


def _pack(first: int, last: int, kinds: dict[int, Kind]) -> Calls:
    """Write each kind once, and the newest numbers."""
    begin = max(first, last - KEPT)
    places = {kind: i for i, kind in enumerate(_different(kinds[n] for n in sorted(kinds)))}
    numbers = (kinds.get(n) for n in range(begin + 1, last + 1))
    return Calls(
        last=last,
        numbers=tuple(UNSEEN if kind is None else places[kind] for kind in numbers),
        kinds=tuple(places),
        whole=begin == first,
    )


def _different(kinds: Iterable[Kind]) -> list[Kind]:
    return list(dict.fromkeys(kinds))
