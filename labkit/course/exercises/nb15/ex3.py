"""Exercise 15-3: broadcast within a group, from its last member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake, Wrong


def every_second(world_size: int) -> list[list[int]]:
    """Return the even and the odd ranks, or both of two."""
    if world_size <= 2:
        return [list(range(world_size))]
    return [list(range(first, world_size, 2)) for first in (0, 1)]


def trial(answer: Callable[[torch.Tensor, dist.ProcessGroup], None], here: Here) -> float:
    """Take what the last of the even or of the odd ranks holds."""
    mine: Any = None
    for ranks in every_second(here.world_size):
        group = dist.new_group(ranks)
        if here.rank in ranks:
            mine = group
    x = torch.tensor([_held(here.rank)], device=here.device)
    answer(x, mine)
    return x.item()


def _held(rank: int) -> float:
    return 10.0 * (rank + 1)


def expected(world_size: int) -> list[float]:
    """Look it up."""
    lasts = {rank: ranks[-1] for ranks in every_second(world_size) for rank in ranks}
    return [_held(lasts[rank]) for rank in range(world_size)]


EXERCISE = Exercise(
    id="15-3",
    title="Take it from the last one",
    answer="from_last",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: 1),),
    mistakes=(
        Mistake(
            "src= is a rank of the world. A place in the group goes into group_src=.",
            raises=r"Global rank",
            shown_by={
                "takes the place for a rank": body(
                    "dist.broadcast(x, src=dist.get_world_size(group) - 1, group=group)"
                )
            },
        ),
        Mistake(
            "There is no such place in the group: places count from 0, and the last one is "
            "dist.get_world_size(group) - 1.",
            raises=r"invalid root rank",
            shown_by={
                "takes the world's last place": body(
                    "dist.broadcast(x, group_src=dist.get_world_size() - 1, group=group)"
                )
            },
        ),
        Mistake(
            "That is the first one's: place 0. The last place is dist.get_world_size(group) - 1.",
            when=lambda yours, expected, n: (
                list(yours)
                == [_held(line[0]) for r in range(n) for line in every_second(n) if r in line]
            ),
            shown_by={"takes the first one": body("dist.broadcast(x, group_src=0, group=group)")},
        ),
        Mistake(
            "Everybody has the same: you talked to the whole world. Hand over group=.",
            when=lambda yours, expected, n: len(set(yours)) == 1 and len(set(expected)) > 1,
            shown_by={
                "talks to everybody": body("dist.broadcast(x, src=dist.get_world_size() - 1)")
            },
        ),
        Mistake(
            "x is as it was: broadcast into x itself, not into a copy.",
            when=lambda yours, expected, n: list(yours) == [_held(r) for r in range(n)],
            shown_by={
                "works on a copy": body("""
                    x = x.clone()
                    dist.broadcast(x, group_src=dist.get_world_size(group) - 1, group=group)
                    return x
                """),
            },
        ),
    ),
    also_wrong={
        "does it twice": Wrong(
            body("""
                for place in range(dist.get_world_size(group)):
                    piece = x.clone()
                    dist.broadcast(piece, group_src=place, group=group)
                x.copy_(piece)
            """),
            says="goal: collectives",
        ),
    },
    another=edit(
        "last = dist.get_world_size(group) - 1",
        "ranks = dist.get_process_group_ranks(group)",
        "group_src=last",
        "src=ranks[-1]",
    ),
    hints=(
        "One rank holds it and all of its group want it: which of the nine is that?",
        "broadcast takes the place of the sender in the group as group_src=, and the group "
        "as group=.",
        "last = dist.get_world_size(group) - 1; dist.broadcast(x, group_src=last, group=group)",
    ),
)
