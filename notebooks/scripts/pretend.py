"""Simulate a GPU and a network, slowly enough to be measured on two cores.

Tensors, calls and ranks are real; the times are simulated. A layer sleeps as long as a GPU would
compute, which leaves the cores to the other ranks. A link makes one transfer after the other, each
of which takes α + β · bytes; the real one happens in that time.

As on a GPU, work waits in a queue: the device does not notice a CPU that comes up to `gpu.late`
seconds late. If the machine falls behind by more than that, the step takes longer.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist


class Device:
    """The simulated GPU of this process."""

    free = 0.0  # the time at which its queue is empty
    late = 10e-3  # by how many seconds the CPU may be late

    def now(self) -> float:
        """Return when it can begin with what it is given now."""
        now = time.perf_counter()
        return self.free if now - self.free < self.late else now

    def compute(self, seconds: float) -> None:
        self.free = self.now() + seconds
        _sleep_until(self.free)

    def synchronize(self) -> None:
        """Let the next work begin when it is given: call this where you start to measure."""
        self.free = 0.0


gpu = Device()


class Layer(torch.nn.Linear):
    """A linear layer on the simulated GPU: its backward pass takes twice its forward pass."""

    def __init__(self, width: int, seconds: float) -> None:
        super().__init__(width, width)
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Compute.apply(super().forward(x), self.seconds)


class _Compute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        gpu.compute(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gpu.compute(2 * ctx.seconds)
        return gradient, None


class Link:
    """This rank's link; every rank makes one, at the same place of the program."""

    def __init__(self, alpha: float, beta: float) -> None:
        self.alpha, self.beta = alpha, beta
        self.group = dist.new_group()  # its calls are not mixed up with the program's
        self.queue = ThreadPoolExecutor(1)  # one thread: one transfer at a time
        self.free = 0.0  # when the all-reduces before have ended
        self.transfers: list[tuple[float, float]] = []  # from when to when each took

    def all_reduce(self, x: torch.Tensor) -> "Work":
        """Add x up over the ranks, after the transfers before; return without waiting."""
        return Work(self.queue.submit(self._all_reduce, x, gpu.now()))

    def turn(
        self,
        outgoing: torch.Tensor | None = None,
        to: int | None = None,
        incoming: torch.Tensor | None = None,
        source: int | None = None,
    ) -> None:
        """Send a tensor, receive one, or do both at the same time, and wait until it has ended.

        It begins when this rank is ready and, if it receives, the rank that sends is ready, too.
        """
        tensors = [x for x in (outgoing, incoming) if x is not None]
        mine = tensors[0].new_tensor([gpu.now()], dtype=torch.float64)
        theirs = mine.clone()
        receive = [] if source is None else [(dist.irecv, x, source) for x in (theirs, incoming)]
        send = [] if to is None else [(dist.isend, x, to) for x in (mine, outgoing)]
        for work in dist.batch_isend_irecv([dist.P2POp(*one) for one in receive + send]):
            work.wait()
        begin = max(mine.item(), theirs.item())
        gpu.free = begin + self.alpha + self.beta * max(x.nbytes for x in tensors)
        _sleep_until(gpu.free)

    def _all_reduce(self, x: torch.Tensor, ready: float) -> float:
        begin = x.new_tensor(max(ready, self.free), dtype=torch.float64)
        dist.all_reduce(begin, dist.ReduceOp.MAX, self.group)  # when the last rank is ready
        dist.all_reduce(x, group=self.group)
        self.free = begin.item() + self.alpha + self.beta * x.nbytes
        _sleep_until(self.free)
        self.transfers.append((begin.item(), self.free))
        return self.free


class Work:
    """A handle with `wait()`, as `dist.all_reduce(x, async_op=True)` returns."""

    def __init__(self, end: "Future[float]") -> None:
        self.end = end

    def wait(self) -> None:
        """Wait; what the GPU is given next begins after the transfer."""
        gpu.free = max(gpu.free, self.end.result())


def _sleep_until(end: float) -> None:
    time.sleep(max(0.0, end - time.perf_counter()))
