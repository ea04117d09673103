"""Put together which collectives this rank has issued in a cell, for the notebook to compare.

Ranks match the collectives of a group by their numbers. Gloo counts messages too, so the number of
a note (``collective_notes``) is what its Work has, less the messages posted before. Numbers that
nobody has noted are of what torch issued in C++, as DDP's backward does; then alone the recorder
is read, which takes a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from ...wire.calls import UNKNOWN, UNSEEN, Calls, CellCalls, Kind
from ...wire.samples import GroupKey
from ..torch_internals import collectives, groups, names
from ..torch_internals.groups import ProcessGroup
from ..torch_internals.recorder import TYPES, Issued
from . import call_details, collective_notes, flight_recorder, p2p_record
from .collective_notes import KEPT, Note

#: group -> operations that it had counted when the cell began, and those that are no collectives
_began: WeakKeyDictionary[ProcessGroup, tuple[int, int]] = WeakKeyDictionary()


def begin() -> None:
    """Note where the numbers of each group stand."""
    collective_notes.noted.clear()
    _began.clear()
    if names.is_on("collectives"):
        for group in groups.groups():
            _began[group] = _counted(group)


def _counted(group: ProcessGroup) -> tuple[int, int]:
    return groups.issued(group) or 0, collective_notes.others.get(group, 0)


def collect() -> CellCalls | None:
    """Describe the newest collectives of each group since ``begin``, None if there are none."""
    if not names.is_on("collectives") or not any(map(_has_new, groups.groups())):
        return None
    found = dict(_describe())
    return CellCalls(dist.get_rank(), found) if found else None


def _has_new(group: ProcessGroup) -> bool:
    """Tell whether a group has had collectives since ``begin``."""
    if group in collective_notes.noted:
        return True
    (was, less), (counted, now_less) = _began.get(group, (0, 0)), _counted(group)
    return counted - was > now_less - less


def _describe() -> Iterator[tuple[GroupKey, Calls]]:
    recorded: list[Issued] | None = None
    for group, ranks in groups.members().items():
        if len(ranks) < 2 or not _has_new(group):
            continue
        numbered = _numbers(group)
        if numbered is None:
            continue
        first, last, notes = numbered
        kinds: dict[int, Kind] = {}
        # Parts of monitored barriers have numbers in the recorder, but not as many on each rank.
        if len(notes) < min(last - first, KEPT) and not p2p_record.barriers.get(group):
            if recorded is None:
                recorded = flight_recorder.entries()
            own = (e for e in recorded if e.group == group.group_name)
            kinds = {e.number: _kind_of(e) for e in own if first < e.number <= last}
        known: dict[Note, Kind] = {}
        for number, note in notes.items():
            if note not in known:
                known[note] = _kind(note)
            kinds[number] = known[note]
        if kinds:
            yield flight_recorder.key(group, ranks), _pack(first, last, kinds)


def _numbers(group: ProcessGroup) -> tuple[int, int, dict[int, Note]] | None:
    """Return how many collectives a group had before the cell, how many it has now, and the notes
    by number; None where these cannot be told from what else the group counts."""
    backends = groups.backends(group)
    if len(backends) > 1:
        return None
    counts_all = backends[0] == "gloo"
    noted = collective_notes.noted.get(group)
    first, last = (
        operations - less * counts_all
        for operations, less in (_began.get(group, (0, 0)), _counted(group))
    )
    notes = {
        operation - less * counts_all: note
        for operation, less, note in (noted.copy() if noted else ())
    }
    return first, last, notes


def _kind(note: Note) -> Kind:
    return Kind(
        name=note.name,
        backend=note.backend,
        types=tuple(map(_type_name, note.types)),
        elements=note.elements,
        order=note.order,
        gaps=note.gaps,
        op=note.op,
        where=call_details.describe(note.place)[0],
        direct=note.direct,
    )


def _type_name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def _kind_of(entry: Issued) -> Kind:
    """Describe what torch issued in C++."""
    types = collective_notes.shorten(TYPES.get(name, name) for name in entry.types)
    name = entry.name.rpartition(":")[2]
    return Kind(collectives.plain_name(name), entry.backend, types, order=UNKNOWN)


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
