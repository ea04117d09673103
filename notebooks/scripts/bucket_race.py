"""Race DDP's backward passes with different buckets, over gloo and over simulated networks.

The rules are those of ``race.py``: the contenders take turns, so that a busy moment of the machine
hits all of them; the first turns warm up (DDP orders its buckets in them); the slowest rank of each
turn counts, and every turn is returned.

A simulated network is a communication hook: it sends nothing, but completes a bucket's future as
late as a network would that uses no core. It measures DDP's schedule, not the network of a machine.
"""

import time
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

#: A network's seconds per call, and per byte (100 MB/s).
ALPHA, BETA = 3e-3, 1e-8
WARM_UP, TURNS = 2, 7

#: The network: one transfer at a time.
_network = ThreadPoolExecutor(1)


def slow_network(state: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Transfer a bucket as soon as it is ready."""
    return _transferred(bucket.buffer(), Future())


def at_the_end(held: list, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Hold all buckets back until the last one is ready: nothing overlaps."""
    future: Future[torch.Tensor] = Future()
    held.append((bucket.buffer(), future))
    while bucket.is_last() and held:
        _transferred(*held.pop(0))
    return future


def no_network(state: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Take no time at all: what is left is the backward pass and DDP's own work."""
    future: Future[torch.Tensor] = Future()
    future.set_result(bucket.buffer())
    return future


def _transferred(buffer: torch.Tensor, future: Future[torch.Tensor]) -> Future[torch.Tensor]:
    _network.submit(_transfer, buffer, future)
    return future


def _transfer(buffer: torch.Tensor, future: Future[torch.Tensor]) -> None:
    time.sleep(ALPHA + BETA * buffer.nbytes)
    future.set_result(buffer)


def race(
    contenders: Mapping[Hashable, tuple[DistributedDataParallel, int]],
    rows: torch.Tensor,
    group: dist.ProcessGroup,
) -> dict[Hashable, list[float]]:
    """Return the seconds of a backward pass by contender and turn; all ranks of the group call it.

    A contender is a wrapped model on the CPU, and how many steps it makes per synchronization.
    """
    turns = [
        [seconds(net, rows, group, every) for net, every in contenders.values()]
        for _ in range(WARM_UP + TURNS)
    ]
    slowest = torch.tensor(turns[WARM_UP:])
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
    return dict(zip(contenders, slowest.T.tolist(), strict=True))


def seconds(
    net: DistributedDataParallel, rows: torch.Tensor, group: dist.ProcessGroup, every: int = 1
) -> float:
    """Time ``every`` backward passes, of which the last one synchronizes; return their mean."""
    with net.no_sync():
        alone = sum(_backward(net, rows, group) for _ in range(every - 1))
    return (alone + _backward(net, rows, group)) / every


def _backward(net: DistributedDataParallel, rows: torch.Tensor, group: dist.ProcessGroup) -> float:
    loss = net(rows).square().mean()
    dist.barrier(group)
    start = time.perf_counter()
    loss.backward()
    return time.perf_counter() - start
