"""DDP on 2, 3 and 4 ranks does what one process does: notebooks 06 and 17 rest on it.

Four ranks are started once; two and three of them train in a group of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import labkit

#: How far weights may be apart after ten steps, that have moved a hundred times as far.
TOLERANCE = 1e-4
STEPS = 10
#: Images of a batch on all ranks: what 2, 3 and 4 all divide, and what none of 2, 3, 4 does.
EQUAL, UNEQUAL = 24, 25


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def make_batch(step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(size, 8, generator=generator)
    return inputs, torch.randint(4, (size,), generator=generator)


def weights(net: nn.Module) -> torch.Tensor:
    return nn.utils.parameters_to_vector(net.parameters()).detach().clone()


def one_process(size: int) -> torch.Tensor:
    """Train on whole batches; return the weights."""
    net = make_model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        inputs, labels = make_batch(step, size)
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    return weights(net)


def with_ddp(n: int, size: int, fair: bool) -> torch.Tensor | None:
    """Train on this rank's part of the same batches; return the weights, on the first n ranks."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank = dist.get_rank()
    group: Any = dist.new_group(list(range(n)))
    if rank >= n:
        return None
    net = make_model()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(rank)  # rank 0's weights stay, and have to be broadcast
    ddp = DistributedDataParallel(net, process_group=group)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        inputs, labels = (part[rank::n] for part in make_batch(step, size))
        optimizer.zero_grad()
        scores = ddp(inputs)
        if fair:
            count = torch.tensor(float(len(labels)))
            dist.all_reduce(count, group=group)
            loss = F.cross_entropy(scores, labels, reduction="sum") * n / count
        else:
            loss = F.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
    return weights(net)


@pytest.fixture(scope="module")
def lab() -> Iterator[labkit.Lab]:
    with labkit.start(4, preload=["torch._dynamo"]) as lab:
        yield lab


def train(lab: labkit.Lab, n: int, size: int, fair: bool = False) -> torch.Tensor:
    """Train on n ranks; check that all have the same weights, bit for bit, and return them."""
    everyone = lab.run(with_ddp, n, size, fair)[:n]
    assert all(mine.equal(everyone[0]) for mine in everyone)
    return everyone[0]


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return (one - other).abs().max().item()


@pytest.mark.parametrize("n", [2, 3, 4])
def test_equal_batches(lab: labkit.Lab, n: int) -> None:
    single = one_process(EQUAL)
    apart = distance(train(lab, n, EQUAL), single)
    assert apart < TOLERANCE
    assert distance(single, weights(make_model())) > 100 * apart


@pytest.mark.parametrize("n", [2, 3, 4])
def test_unequal_batches(lab: labkit.Lab, n: int) -> None:
    single = one_process(UNEQUAL)
    assert distance(train(lab, n, UNEQUAL), single) > 10 * TOLERANCE
    assert distance(train(lab, n, UNEQUAL, fair=True), single) < TOLERANCE


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
    """The race of notebook 17 rests on it."""
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
    """Exercise 17-3 accounts for a share's state in the same way."""
    assert lab.run(sharded_state, n, 5)[:n] == [[4, 20, 20]] * n
