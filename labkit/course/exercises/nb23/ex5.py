"""Exercise 23-5: gather on the last member of a group, whose place there is not its rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import every_rank, simulated, some_rank


def partitions(world_size: int) -> list[list[list[int]]]:
    """Return in how the ranks are grouped, one way after the other: even and odd, then rank 0
    and the others."""
    ranks = range(world_size)
    ways = [[[*ranks[::2]], [*ranks[1::2]]], [[0], [*ranks[1:]]]]
    return [[line for line in way if line] for way in ways]


def held(rank: int) -> list[int]:
    """Return what a rank holds."""
    return [10 * (rank + 1), -rank]


def trial(
    answer: Callable[[torch.Tensor, dist.ProcessGroup], list[torch.Tensor] | None], here: Here
) -> list[Any]:
    """Collect in this rank's group, grouped in two ways; look at x afterwards."""
    found: list[Any] = []
    for way in partitions(here.world_size):
        mine: Any = None
        for ranks in way:
            group = dist.new_group(ranks)
            if here.rank in ranks:
                mine = group
        x = torch.tensor(held(here.rank), device=here.device)
        parts = answer(x, mine)
        tensor = isinstance(parts, torch.Tensor)  # a list is asked for
        found.append(
            "None" if parts is None else parts if tensor else [part.tolist() for part in parts]
        )
        if x.tolist() != held(here.rank):
            found[-1] = f"changed x to {x.tolist()}"
    return found


def expected(world_size: int, place: int = -1) -> list[list[Any]]:
    """Return what each rank has if the member at a place collects."""
    found: list[list[Any]] = [[] for _ in range(world_size)]
    for way in partitions(world_size):
        for ranks in way:
            for rank in ranks:
                collects = rank == ranks[place]
                found[rank].append([held(r) for r in ranks] if collects else "None")
    return found


EXERCISE = Exercise(
    id="23-5",
    title="Collect at the end",
    answer="collect",
    trial=trial,
    expected=expected,
    entries=("in a group of every second rank", "without rank 0"),
    forbids=("all_gather", "all_gather_into_tensor", "all_gather_object", "gather_object"),
    goals=(Goal("collectives", exactly=lambda n: 2),),
    mistakes=(
        Mistake(
            "dst= takes a global rank. Pass a place in the group as group_dst=.",
            raises=r"Global rank \d+ is not part of group",
        ),
        Mistake(
            "There is no such place in the group: places count from 0, so the last one is "
            "dist.get_world_size(group) - 1.",
            raises=r"Group rank \d+ is not part of group|invalid root|out of range",
        ),
        Mistake(
            "The list of tensors to receive into is for the last member only; the others pass "
            "None.",
            raises=r"gather_list`* must NOT be specified",
        ),
        Mistake(
            "gather runs on all ranks: pass group=group, so that it collects from this group's "
            "members only.",
            raises=r"(list size|must be specified)[\s\S]*gather\((?![^\n]*group=)[^\n]*\)",
        ),
        Mistake(
            "Without a destination gather collects on global rank 0, not on the last member: pass "
            "group_dst=.",
            raises=r"gather\((?![^\n]*dst)[^\n]*group=[^\n]*\)",
        ),
        Mistake(
            "The last member has to pass a list of tensors to receive into, one per member of the "
            "group.",
            raises=r"gather_list`* must be specified",
        ),
        Mistake(
            "The first member (place 0) has collected. The last place is "
            "dist.get_world_size(group) - 1.",
            when=simulated(lambda n: expected(n, place=0)),
        ),
        Mistake(
            "Every rank returns None. The last member has to return the list into which it has "
            "received.",
            when=every_rank(lambda mine, its: mine == ["None", "None"]),
        ),
        Mistake(
            "All members but the last have to return None; here others return something, too.",
            when=some_rank(
                lambda mine, its: any(
                    e == "None" and y != e for y, e in zip(mine, its, strict=True)
                )
            ),
        ),
        Mistake(
            "Not every member calls gather: all of them have to, with the same group_dst=.",
            stuck=r"gather",
        ),
        Mistake(
            "A list of tensors is asked for, one per member; this is one tensor.",
            when=some_rank(lambda mine, its: any(isinstance(y, torch.Tensor) for y in mine)),
        ),
    ),
    hints=(
        "You need two numbers: the last place in the group, and this rank's own place.",
        "dist.get_world_size(group) and dist.get_rank(group) count inside the group.",
        "gather takes x, then the list (None on all members but the last), then group= and, as "
        "group_dst=, the place of the member that collects.",
    ),
)
