"""What exercises of notebook 00 find out about answers, on functions that are made here."""

from __future__ import annotations

import pytest
import torch

from labkit.course.exercises.nb00.reduced import left_by_reduce


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
