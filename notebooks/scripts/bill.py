"""Measure what a training step costs, part by part, for notebook 21.

A contender of ``race.clock`` is a function ``f(x, n)`` that all n ranks of a group call. What is
timed here runs on the CPU, with one thread per rank.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from fsdp_parts import counting_saved, local
from torch import nn
from torch.futures import Future

#: The simulated network's seconds per all-reduce, and per byte of gradients.
ALPHA, BETA = 1e-3, 2.5e-9
#: Widths of the two nets; numbers per row of the second one.
CHANNELS, WIDTH, LAYERS = 16, 512, 4

#: The simulated network: one transfer at a time.
_network = ThreadPoolExecutor(1)


def convolutions() -> nn.Sequential:
    """Return notebook 07's net, of width 16: 33,000 parameters for images of 28 × 28 pixels."""
    width = CHANNELS
    convs = [nn.Conv2d(1, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*convs, nn.Flatten(), nn.Linear(width * 14 * 14, 10))


def linear_layers() -> nn.Sequential:
    """Return four layers of 512 × 512 weights, 4 MiB in all; one row is one example."""
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])


def step(net: nn.Module, optimizer: torch.optim.Optimizer, rows: torch.Tensor) -> None:
    """Make one training step; the loss is the mean square of the output."""
    optimizer.zero_grad()
    net(rows).square().mean().backward()
    optimizer.step()


def contenders(net: nn.Module, rows: torch.Tensor, shares: list[float]) -> tuple[Callable, ...]:
    """Return two contenders for a DDP model: a step without all-reduce, and a whole one.

    Each step without all-reduce appends to ``shares`` which share of a core it has had: well below
    1 where something else runs. (Without all-reduces the ranks' weights drift apart; their times do
    not depend on it.)
    """
    adam = torch.optim.Adam(net.parameters(), lr=1e-4)

    def alone(*_: object) -> None:
        start = time.process_time(), time.perf_counter()
        with net.no_sync():
            step(net, adam, rows)
        wall = time.perf_counter() - start[1]
        shares.append((time.process_time() - start[0]) / wall)

    return alone, lambda *_: step(net, adam, rows)


def slow_network(state: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Complete a bucket as late as a slow network would, which needs no core (a DDP hook).

    It sends nothing: it measures DDP's schedule, not the network of a machine.
    """
    future: Future[torch.Tensor] = Future()
    _network.submit(_transfer, bucket.buffer(), future)
    return future


def _transfer(buffer: torch.Tensor, future: Future[torch.Tensor]) -> None:
    time.sleep(ALPHA + BETA * buffer.nbytes)
    future.set_result(buffer)


def held(net: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Count the bytes that this rank holds of weights, gradients and optimizer state."""
    state = [t for entry in optimizer.state.values() for t in entry.values()]
    parts: Mapping[str, Iterable[torch.Tensor]] = {
        "weights": net.parameters(),
        "gradients": (p.grad for p in net.parameters() if p.grad is not None),
        "optimizer state": state,
    }
    return {name: sum(local(t).nbytes for t in tensors) for name, tensors in parts.items()}


def kept(net: nn.Module, rows: torch.Tensor) -> int:
    """Count the bytes that autograd keeps from forward for backward, without the weights."""
    with counting_saved(net) as sizes:
        loss = net(rows).square().mean()
    total = sum(sizes.values())  # while the graph still holds them
    del loss
    return total


def matmul_rate(turns: int = 7, size: int = 1024) -> float:
    """Return the fastest float32 matrix product's FLOP/s, with this process's threads."""
    a, b = torch.randn(2, size, size)
    best = min(_seconds(lambda: a @ b) for _ in range(turns))
    return 2 * size**3 / best


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def save(state: dict, path: str) -> None:
    """Write a checkpoint as notebook 11 does: to another name, flushed to the disk, renamed."""
    with open(f"{path}.new", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def lost(interval: float, delta: float, mtbf: float, restart: float, failures: Iterator) -> float:
    """Simulate a run with 2,000 failures that saves, for ``delta`` seconds, after each ``interval``
    of training; return the share of time lost.

    ``failures`` yields times from one failure to the next, with a mean of 1 (for ``mtbf`` seconds).
    A failure costs what was done since the last save, and ``restart`` seconds.
    """
    kept = total = 0.0
    for _ in range(2000):
        until = mtbf * next(failures)
        kept += until // (interval + delta) * interval
        total += until + restart
    return 1 - kept / total
