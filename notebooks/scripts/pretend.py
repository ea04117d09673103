"""Pretend a device and a network whose times show on two cores.

Tensors, calls and ranks are real; the times are pretended. A layer waits as long as a GPU would
compute, so the CPU is free meanwhile. A link makes one transfer after the other, each of which
takes α + β · bytes: at least as long as the real one, which happens in that time.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist


class Layer(torch.nn.Linear):
    """A linear layer on the pretended device: its backward pass takes twice its forward pass."""

    def __init__(self, width: int, seconds: float) -> None:
        super().__init__(width, width)
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Compute.apply(super().forward(x), self.seconds)


class _Compute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * ctx.seconds)
        return gradient, None


class Link:
    """This rank's link; every rank makes one, at the same place of the program."""

    def __init__(self, alpha: float, beta: float) -> None:
        self.alpha, self.beta = alpha, beta
        self.group = dist.new_group()  # its calls are not mixed up with the program's
        self.queue = ThreadPoolExecutor(1)  # one thread: one transfer at a time
        self.transfers: list[tuple[float, float]] = []  # when each all-reduce began and ended

    def all_reduce(self, x: torch.Tensor) -> "Work":
        """Add x up over the ranks, after the transfers before; return without waiting."""
        return Work(self.queue.submit(self._all_reduce, x))

    def carry(self, nbytes: int) -> None:
        """Hold the link, after the transfers before, as long as so many bytes take."""
        self.queue.submit(time.sleep, self.alpha + self.beta * nbytes).result()

    def _all_reduce(self, x: torch.Tensor) -> None:
        dist.barrier(self.group)  # it begins when the last rank is there
        begin = time.perf_counter()
        dist.all_reduce(x, group=self.group)
        end = begin + self.alpha + self.beta * x.nbytes
        time.sleep(max(0.0, end - time.perf_counter()))
        self.transfers.append((begin, time.perf_counter()))


class Work:
    """What `dist.all_reduce(x, async_op=True)` returns, too: something to wait for."""

    def __init__(self, future: "Future[None]") -> None:
        self.wait = future.result
