"""Return whether ranks are in step: whether their next calls in a group will meet one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..wire.samples import GroupKey, Sample


def in_step(samples: Mapping[int, Sample]) -> bool:
    """Return whether idle ranks have made the same calls, with none of them under way.

    Equal numbers of collectives in each group, as many receives as sends between any two, and as
    many groups made: torch names the next one after their number. None may still be connected.
    """
    issued: dict[GroupKey, set[tuple[int, int]]] = {}
    for sample in samples.values():
        for key, group in sample.groups.items():
            if not all(entry.done for entry in group.entries.values()):
                return False
            issued.setdefault(key, set()).add((group.last, group.barriers))
    return (
        len({sample.joined for sample in samples.values()}) <= 1
        and _made_as_many_groups(samples)
        and not any(sample.connecting for sample in samples.values())
        and all(len(seen) == 1 for seen in issued.values())
        and not unmatched(samples)
    )


def unmatched(samples: Mapping[int, Sample]) -> dict[tuple[GroupKey, int, int, int], int]:
    """Count the sends that have no receive, by (group, sender, receiver, tag); less than none:
    receives that have no send. Where a rank takes from any, nothing is known of its messages."""
    balance: Counter[tuple[GroupKey, int, int, int]] = Counter()
    takes_any = set()
    for rank, sample in samples.items():
        for key, group in sample.groups.items():
            for (kind, peer, tag), count in group.posted.items():
                if kind == "send":
                    balance[key, rank, peer, tag] += count
                elif kind == "recv":
                    balance[key, peer, rank, tag] -= count
                else:
                    takes_any.add((key, rank, tag))
    return {
        (key, sender, to, tag): count
        for (key, sender, to, tag), count in balance.items()
        if count and (key, to, tag) not in takes_any
    }


def _made_as_many_groups(samples: Mapping[int, Sample]) -> bool:
    """Return whether ranks have made equal numbers of groups, as far as torch counts them.

    Groups that only their members make (``use_local_synchronization``) have a hash for a name, and
    are counted on their members, or nowhere, as the version of torch will.
    """
    alone = {
        rank: sum(not name.isdigit() for name, _ in sample.groups)
        for rank, sample in samples.items()
    }
    return any(
        len({sample.made - less[rank] for rank, sample in samples.items()}) <= 1
        for less in (dict.fromkeys(samples, 0), alone)
    )
