"""What exercises of notebook 00 find out about answers, on functions that are made here."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest
import torch
import torch.distributed as dist

from labkit.course.exercises.nb00.fixed_size import right_by_chance
from labkit.course.exercises.nb00.reduced import left_by_reduce
from labkit.wire.trial import Here, Watched

CALLED: list[Any] = []


def answer(expression: str) -> Any:
    """Define an answer as a cell on rank 2 of four does."""
    names = {"rank": 2, "world_size": 4, "dist": dist, "torch": torch, "called": CALLED}
    exec(f"def answer():\n    return {expression}", names)
    return names["answer"]


def is_fixed(given: Any, world_size: int = 4) -> bool:
    here = Here(2, world_size, torch.device("cpu"))
    return right_by_chance(given, here, lambda rank, value: value == (rank + 1) % world_size)


@pytest.mark.parametrize(
    "expression",
    ["(rank + 1) % 4", "(rank + 1) & 3", "0 if rank == 3 else rank + 1", "[1, 2, 3, 0][rank]",
     "(dist.get_rank() + 1) % 4", "(lambda r: (r + 1) % 4)(rank)",
     "torch.arange(4).roll(-1)[rank]"],
)  # fmt: skip
def test_a_number_of_ranks_that_is_written_in_is_found(expression: str) -> None:
    given = answer(expression)
    assert is_fixed(given)
    assert is_fixed(Watched(given))  # as a trial gets it
    assert not is_fixed(given, 5)
    assert given.__globals__["rank"] == 2


@pytest.mark.parametrize(
    "expression",
    ["(rank + 1) % world_size", "(rank + 1) % dist.get_world_size()", "rank + 1", "rank - 1",
     "(rank + 1) % dist.group.WORLD.size()", "called.append(rank) or (rank + 1) % 4",
     "print(rank) or (rank + 1) % 4", "[(r + 1) % 4 for r in range(4)][rank]", "1 // 0"],
)  # fmt: skip
def test_nothing_else_is_taken_for_one(expression: str) -> None:
    assert not is_fixed(answer(expression))
    assert not CALLED


def test_what_may_know_the_number_is_left_alone() -> None:
    size = 4
    names: dict[str, Any] = {"rank": 2}
    exec("def answer(n=4):\n    return (rank + 1) % n", names)
    assert not is_fixed(names["answer"])
    assert not is_fixed(lambda: (2 + 1) % size)
    assert not is_fixed(FunctionType)


@pytest.mark.parametrize("world_size", [2, 4])
def test_what_a_reduce_leaves(world_size: int) -> None:
    brought = [torch.tensor([10.0**rank, 1.0]) for rank in range(world_size)]
    total = torch.stack(brought).sum(0)
    nccl = [total, *brought[1:]]
    gloo = [torch.stack(brought[rank:]).sum(0) for rank in range(world_size)]
    assert left_by_reduce(nccl, brought)
    assert left_by_reduce(gloo, brought)
    assert left_by_reduce([mine.tolist() for mine in gloo], brought)
    assert not left_by_reduce([total] * world_size, brought)
    assert not left_by_reduce(brought, brought)
    assert not left_by_reduce([total, *[torch.zeros(2)] * (world_size - 1)], brought)
