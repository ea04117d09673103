"""Explain deadlocks of groups: forming them, stores, and members that were left out."""

from __future__ import annotations

from ..base.rank_names import label
from ..wire.samples import GroupKey
from .case import Case
from .exit_reason import NOT_ASKED
from .needs import Situation, crossed_with, groups_of


def crossed_groups(case: Case) -> str:
    """Explain groups of the same name with different members: each rank has made only its own."""
    keys = (
        (rank, key)
        for rank, wait in case.waits.items()
        for key in filter(None, [wait.making, *(key for key, _ in wait.options)])
    )
    return next((text for rank, key in keys if (text := crossed(case.situation, rank, key))), "")


def crossed(s: Situation, rank: int, key: GroupKey) -> str:
    """Return which rank has made another group under the name of one that a rank has made, "" if
    none has."""
    others = sorted(crossed_with(s, rank, key))
    if not others:
        return ""
    its = next(k for k in sorted(groups_of(s.samples[others[0]])) if k[0] == key[0])
    (first, mine), (second, theirs) = sorted([(rank, key), (others[0], its)])
    return (
        f"Rank {first} made the group of {label(mine[1])} where rank {second} made that of "
        f"{label(theirs[1])}: every rank has to call new_group for every group, in the same "
        "order, also for those that it is not a member of."
    )


def new_group(case: Case) -> str:
    waits = [w for w in case.waits.values() if w.kind == "new_group"]
    if not waits:
        return ""
    if any(w.number < 0 for w in waits):
        return (
            "With use_local_synchronization=True, new_group waits for the members of the group: "
            "each of them has to call it, with the same ranks."
        )
    if len({w.making for w in waits}) > 1:
        return "They make different groups. Every rank has to make the same groups in one order."
    return (
        "new_group has to be called by every rank of the lab, also by those that are not "
        "in the new group, and in the same order."
    )


def init_process_group(case: Case) -> str:
    waits = {r: w for r, w in case.waits.items() if w.kind == "init"}
    if not waits:
        return ""
    if len({w.at for w in waits.values() if w.at}) > 1:
        places = "; ".join(f"{label([r])} {w.at}" for r, w in sorted(waits.items()) if w.at)
        return f"They meet at different addresses: {places}. All of a group need the same one."
    numbers = [w.me for w in waits.values() if w.me >= 0]
    if len(set(numbers)) < len(numbers):
        same = sorted(r for r, w in waits.items() if numbers.count(w.me) > 1)
        number = waits[same[0]].me
        return f"{label(same).capitalize()} all gave rank={number}. Each needs its own number."
    sizes = _world_sizes(case)
    if len(sizes) > 1:
        said = ", ".join(f"{size} on {label(ranks)}" for size, ranks in sorted(sizes.items()))
        return f"The values of world_size differ: {said}. All ranks of a group need the same one."
    if max(sizes, default=0) > case.situation.size:
        return (
            f"world_size={max(sizes)} is more than the {case.situation.size} ranks that are "
            "here, so init_process_group waits for ranks that do not exist."
        )
    return "init_process_group returns when all world_size ranks have called it."


def _world_sizes(case: Case) -> dict[int, list[int]]:
    """Return the ranks by the world size that they gave or, where they have formed their group
    already, by the size of that."""
    found: dict[int, list[int]] = {}
    for rank, sample in sorted(case.situation.samples.items()):
        wait = case.waits.get(rank)
        size = wait.size if wait is not None and wait.kind == "init" else 0
        if sample.joined and not size:
            size = max((len(key[1]) for key in sample.groups), default=0)
        if size > 0:
            found.setdefault(size, []).append(rank)
    return found


def store(case: Case) -> str:
    keys = sorted({w.at for w in case.waits.values() if w.kind == "store"})
    return f"Nobody sets the key {keys[0]}, and get and wait need it." if keys else ""


def left_out(case: Case) -> str:
    absent = case.absent()
    left_out = sorted(r for r in absent if case.exit_reasons.get(r) == NOT_ASKED)
    if not left_out:
        return ""
    return (
        f"The cell ran without {label(left_out)}, but the group has them as members: run it on "
        "every rank of the group, or use a group of these ranks only."
    )
