"""What notebook 25 and its exercises assume of DDP's buckets and of ZeRO's shares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import labkit


@pytest.fixture(scope="module")
def lab() -> Iterator[labkit.Lab]:
    with labkit.start(4, preload=["torch._dynamo"]) as lab:
        yield lab


def bucket_sizes(count: int, n: int) -> list[int]:
    """Return the bytes of DDP's buckets in the second step, for ``count`` equal parameters of 4
    bytes, of which one n-th closes a bucket."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    class Chain(nn.Module):
        """Use parameters one after the other, so that the last has its gradient first."""

        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ParameterList(torch.ones(1) for _ in range(count))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for part in self.parts:
                x = x * part
            return x

    seen: list[int] = []

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP takes no Any here
        seen.append(bucket.buffer().nbytes)
        return allreduce_hook(None, bucket)

    ddp = DistributedDataParallel(Chain(), bucket_cap_mb=4 * count / n / 2**20)
    ddp.register_comm_hook(None, hook)
    for _ in range(2):
        seen.clear()
        ddp(torch.ones(1)).backward()
    return seen


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_equal_layers_make_equal_buckets(lab: labkit.Lab, n: int) -> None:
    """The race of notebook 25 rests on it."""
    assert lab.run(bucket_sizes, 16, n) == [[64 // n] * n] * 4


def sharded_state(n: int, numbers: int) -> list[int] | None:
    """Return the bytes of Adam's state on this rank, sharded over n ranks by parameters."""
    import torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer

    group: Any = dist.new_group(list(range(n)))
    if dist.get_rank() >= n:
        return None
    parameters = [nn.Parameter(torch.ones(numbers)) for _ in range(n)]
    zero = ZeroRedundancyOptimizer(parameters, torch.optim.Adam, process_group=group, lr=0.1)
    for p in parameters:
        p.grad = torch.ones(numbers)
    zero.step()
    return [t.nbytes for entry in zero.optim.state.values() for t in entry.values()]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_zero_keeps_the_state_of_one_share(lab: labkit.Lab, n: int) -> None:
    """Exercise 25-3 accounts for a share's state in the same way."""
    assert lab.run(sharded_state, n, 5)[:n] == [[4, 20, 20]] * n
