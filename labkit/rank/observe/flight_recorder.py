"""Read torch's flight recorder: which collectives this rank has issued, and which are pending.

The recorder numbers the collectives of a group from 1; ranks match them by that number. It keeps
the last ``record.RECORDER_SIZE`` entries, and answers while the rank is blocked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d
from torch._C._distributed_c10d import ProcessGroup
from torch.distributed import distributed_c10d as c10d

from ...wire.samples import Entry, Group, GroupKey
from . import p2p_record

#: Entries of a group that an answer carries, beside the pending ones.
RECENT = 4


def _backends() -> list[str]:
    """Say which recorders to ask: every backend has its own."""
    names = {dist.get_backend(g) for g in c10d._world.pg_map}
    return [name for name in ("gloo", "nccl") if any(name in n for n in names)]


def _belongs(entry: dict[str, Any], births: dict[str, int]) -> bool:
    """Tell whether an entry is of a group of today: a name comes again after
    ``destroy_process_group``."""
    born = births.get(entry["process_group"][0])
    return born is not None and entry["time_created_ns"] >= born and not entry["is_p2p"]


def _births() -> dict[str, int]:
    return {g.group_name: p2p_record.born.get(g, 0) for g in _groups()}


def _groups() -> dict[ProcessGroup, dict[int, int]]:
    """Return this rank's groups: rank in the world -> rank in the group."""
    found = dict(c10d._world.pg_group_ranks)
    return {g: ranks for g, ranks in found.items() if isinstance(g, ProcessGroup)}


def entries() -> list[dict[str, Any]]:
    """Return what the recorder has on the groups of today, oldest first."""
    if not dist.is_initialized():
        return []
    births = _births()
    found: list[dict[str, Any]] = []
    for backend in _backends():
        dump = json.loads(_dump(backend))
        found += [e for e in dump.get("entries", []) if _belongs(e, births)]
    return found


def _dump(backend: str) -> bytes:
    try:
        return _distributed_c10d._dump_fr_trace_json(backend=backend)
    except TypeError:  # an older torch has one recorder for all backends
        return _distributed_c10d._dump_fr_trace_json()


def is_done(entry: dict[str, Any]) -> bool:
    return bool(entry["retired"]) or entry["state"] == "completed"


def key(group: ProcessGroup, ranks: Mapping[int, int]) -> GroupKey:
    """Return by what all ranks know a group, from its members' ranks in the world and in it."""
    return group.group_name, tuple(sorted(ranks, key=ranks.__getitem__))


def keys() -> dict[str, GroupKey]:
    """Return the keys of this rank's groups, by name."""
    return {group.group_name: key(group, ranks) for group, ranks in _groups().items()}


def pending(
    operation: int | None = None, home: str | None = None
) -> tuple[tuple[GroupKey, int], ...]:
    """List the collectives that this rank has issued and that have not finished, as (group,
    number): those with the sequence number ``operation`` (which counts messages too) in the
    group ``home``, where these are given.
    """
    known = keys()
    return tuple(
        (known[e["process_group"][0]], e["collective_seq_id"])
        for e in entries()
        if not is_done(e)
        and operation in (None, e["op_id"])
        and home in (None, e["process_group"][0])
    )


def groups() -> dict[GroupKey, Group]:
    """Describe every group that this rank is in, with what was issued there."""
    if not dist.is_initialized():
        return {}
    by_name: dict[str, list[dict[str, Any]]] = {}
    for entry in entries():
        by_name.setdefault(entry["process_group"][0], []).append(entry)
    out = {}
    for group, ranks in _groups().items():
        name = key(group, ranks)
        members = name[1]
        own = by_name.get(group.group_name, [])
        shown = [e for e in own[:-RECENT] if not is_done(e)] + own[-RECENT:]
        posted = p2p_record.posted.get(group) or Counter()
        out[name] = Group(
            key=name,
            last=_last(group, own),
            entries={e["collective_seq_id"]: _entry(e) for e in shown},
            posted={
                (kind, members[peer] if peer >= 0 else -1, tag): count
                for (kind, peer, tag), count in posted.items()
            },
            barriers=p2p_record.barriers.get(group, 0),
        )
    return out


def _last(group: ProcessGroup, own: list[dict[str, Any]]) -> int:
    if own:
        return int(own[-1]["collective_seq_id"])
    # The group's own counter counts messages too, and the parts of monitored barriers.
    issued = group._get_sequence_number_for_group()  # type: ignore[attr-defined]
    messages = sum((p2p_record.posted.get(group) or Counter()).values())
    return 0 if issued == messages else -1


def _entry(entry: dict[str, Any]) -> Entry:
    return Entry(
        number=entry["collective_seq_id"],
        name=entry["profiling_name"].rpartition(":")[2],
        shapes=tuple(map(tuple, entry["input_sizes"] or entry["output_sizes"])),
        types=tuple(entry["input_dtypes"] or entry["output_dtypes"]),
        done=is_done(entry),
    )
