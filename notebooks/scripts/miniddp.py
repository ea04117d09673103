"""Train on several processes: your own `DistributedDataParallel`, as notebooks 00 to 06 build it.

device = join_group()  # under torchrun
model = DDP(make_model().to(device))
...
loss.backward()  # buckets are averaged meanwhile
model.finish()  # once after each backward(); every .grad is the mean over the ranks
optimizer.step()
"""

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def join_group() -> torch.device:
    """Join the process group that torchrun describes; return the device of this process."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def async_all_reduce(x: torch.Tensor) -> dist.Work:
    """Start an all-reduce of x; return its handle."""
    return dist.all_reduce(x, async_op=True)


class DDP(nn.Module):
    """Average the gradients of a module over all ranks while backward() computes them.

    Every parameter has to get a gradient in each step, and all of them need one dtype and device
    (PyTorch's DDP gives each dtype buckets of its own). There is no accumulation over several
    backward() (DDP has ``no_sync``), and after an error in backward() a new DDP is needed.
    ``all_reduce`` can be another function that works as ``async_all_reduce`` does, such as the
    method of a simulated link.
    """

    def __init__(
        self,
        module: nn.Module,
        cap: int = 2**20,
        all_reduce: Callable[[torch.Tensor], Any] = async_all_reduce,
    ) -> None:
        super().__init__()
        self.module, self.all_reduce = module, all_reduce
        self.buckets = cut(module, cap)
        self.ready: set[nn.Parameter] = set()
        self.started: list[tuple[torch.Tensor, Any]] = []
        for value in module.state_dict().values():
            dist.broadcast(value, src=0)
        for p in module.parameters():
            p.register_post_accumulate_grad_hook(self._on_gradient)

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.module(*args, **options)

    def _on_gradient(self, p: nn.Parameter) -> None:
        """Start every bucket whose turn it is, in the same order on every rank."""
        if p in self.ready:
            raise RuntimeError("backward() ran twice without finish(): averages would be lost")
        self.ready.add(p)
        while len(self.started) < len(self.buckets):
            bucket = self.buckets[len(self.started)]
            if not self.ready.issuperset(bucket):
                break
            flat = torch.cat([p.grad.flatten() for p in bucket]) / dist.get_world_size()
            self.started.append((flat, self.all_reduce(flat)))

    def finish(self) -> None:
        """Wait for the averages, and copy them back into the gradients."""
        if len(self.started) < len(self.buckets):
            raise RuntimeError("a parameter has no gradient, so its bucket was never started")
        for bucket, (flat, work) in zip(self.buckets, self.started, strict=True):
            work.wait()
            for p, piece in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                p.grad.copy_(piece.view_as(p))
        self.ready.clear()
        self.started.clear()


def cut(module: nn.Module, cap: int) -> list[list[nn.Parameter]]:
    """Cut the parameters into buckets, from the last to the first; cap bytes make one full."""
    buckets: list[list[nn.Parameter]] = [[]]
    for p in reversed(list(module.parameters())):
        if sum(q.nbytes for q in buckets[-1]) >= cap:
            buckets.append([])
        buckets[-1].append(p)
    return buckets
