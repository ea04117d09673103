"""Exercise 04-3: find the bug of a script that takes the local rank for the rank."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from ...exercise import Exercise, Here, Mistake
from ...mistakes import Predicate, simulated, some_rank
from .launched import launched


def local_numbers(rank: int, world_size: int) -> tuple[int, int]:
    """Return local rank and local world size: node 0 has one process, node 1 the others."""
    return (0, 1) if rank == 0 else (rank - 1, world_size - 1)


#: Stands for what only a group has.
NO_GROUP = "no group"


def trial(answer: Callable[[], int], here: Here) -> dict[str, Any]:
    """Form the group of two nodes of different size; ask it for its numbers, and add up."""
    local_rank, local_size = local_numbers(here.rank, here.world_size)
    with launched(
        RANK=here.rank, WORLD_SIZE=here.world_size, LOCAL_RANK=local_rank,
        LOCAL_WORLD_SIZE=local_size, GROUP_RANK=int(here.rank > 0),
    ):  # fmt: skip
        with _numbered(rank=here.rank, world_size=here.world_size):
            gpu = answer()
        if not dist.is_initialized():
            return {"GPU": gpu, "rank": NO_GROUP, "sum": NO_GROUP}
        x = torch.tensor([2.0**here.rank])
        dist.all_reduce(x)
        return {"GPU": gpu, "rank": dist.get_rank(), "sum": x.item()}


class WrongNumbers(ValueError):
    """Say which numbers init_process_group was given: ranks would wait for one another without
    success."""


@contextmanager
def _numbered(**right: int) -> Iterator[None]:
    """Keep an answer from forming a group with other numbers than these."""
    original = dist.init_process_group
    local = dict(zip(right, local_numbers(*right.values()), strict=True))

    def init(*args: Any, **named: Any) -> None:
        given = inspect.signature(original).bind(*args, **named).arguments
        wrong = {k: given[k] for k in right if isinstance(given.get(k), int)}
        wrong = {k: value for k, value in wrong.items() if value not in (-1, right[k])}
        if wrong and given.get("store") is None:
            told = ", ".join(f"{name}={value} for {right[name]}" for name, value in wrong.items())
            counted = " (as counted within the node)" if wrong.items() <= local.items() else ""
            raise WrongNumbers(f"init_process_group is given {told}{counted}")
        original(*args, **named)

    with mock.patch.object(dist, "init_process_group", init):
        yield


def expected(world_size: int) -> list[dict[str, Any]]:
    return [
        {"GPU": local_numbers(rank, world_size)[0], "rank": rank, "sum": 2.0**world_size - 1}
        for rank in range(world_size)
    ]


def _returns(wrong: Callable[[int, int], int]) -> Predicate:
    """Return the predicate of the right group, and of ``wrong(rank, n)`` as the GPU."""
    return simulated(lambda n: [its | {"GPU": wrong(r, n)} for r, its in enumerate(expected(n))])


EXERCISE = Exercise(
    id="04-3",
    title="Find the bug",
    answer="join",
    trial=trial,
    expected=expected,
    seconds=8,
    mistakes=(
        Mistake(
            "Each node forms a group of its own, or tries to: LOCAL_RANK and LOCAL_WORLD_SIZE "
            "count within a node. On each node one process takes itself for rank 0.",
            raises=r"^WrongNumbers: .*counted within the node",
        ),
        Mistake(
            "The group is right, but you return the rank as the number of the GPU. GPUs are "
            "numbered per node, and the second node does not have that many.",
            when=_returns(lambda rank, n: rank),
        ),
        Mistake(
            "The group is right, and the GPU is right as long as all nodes have equally many "
            "processes. They may differ: read LOCAL_RANK instead.",
            when=_returns(lambda rank, n: rank % local_numbers(rank, n)[1]),
        ),
        Mistake(
            "torch.cuda.device_count() is 0 where there is no GPU, and it counts too few where a "
            "launcher hides GPUs. Read LOCAL_RANK, which torchrun has counted.",
            raises=r"^ZeroDivisionError[\s\S]*device_count",
        ),
        Mistake(
            "The number of the GPU is a str: wrap it in int(…).",
            when=some_rank(lambda mine, its: isinstance(mine["GPU"], str)),
        ),
        Mistake(
            "There is no group after join: join has to form it, and the check leaves it.",
            when=some_rank(lambda mine, its: mine["rank"] == NO_GROUP),
        ),
    ),
    setup="import os",
    hints=(
        "Two machines, two processes each: write down what rank and world_size are in each of the "
        "four.",
        "The group counts all processes, the GPU counts within the node. The function uses one "
        "number for both.",
        "Leave rank= and world_size= out: env:// reads RANK and WORLD_SIZE by itself. What "
        "is returned was right.",
    ),
)
