"""Small models and helpers with which notebook 25 tries DDP's options."""

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def make_model() -> nn.Sequential:
    """Return three linear layers, from 64 numbers to 10, with 340,008 bytes of parameters."""
    layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    return nn.Sequential(*layers)


class Heads(nn.Module):
    """Three heads on one body; the caller says which of them to add up: ``net(x, "ab")``."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(64, 8)
        self.a, self.b, self.c = (nn.Linear(8, 1) for _ in range(3))

    def forward(self, x: torch.Tensor, heads: str) -> torch.Tensor:
        return sum(getattr(self, head)(self.body(x)) for head in heads)


def deep(n: int, hook: Callable, state: object, group: dist.ProcessGroup) -> nn.Module:
    """Wrap 16 equal layers on the CPU, 4 MiB in all, in DDP with n equal buckets and a hook."""
    model = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(16)])
    net = DistributedDataParallel(model, process_group=group, bucket_cap_mb=4 / n)
    net.register_comm_hook(state, hook)
    return net


def train(net: nn.Module, x: torch.Tensor, steps: int) -> None:
    """Make ``steps`` backward passes; the loss is the mean square of the output."""
    for _ in range(steps):
        net.zero_grad()
        net(x).square().mean().backward()


def gathered(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> list[torch.Tensor]:
    """Return the tensors x of all ranks of the group."""
    everyone = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(everyone, x.detach(), group=group)
    return everyone


def same(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> bool:
    """Tell whether all ranks of the group hold the same x, bit for bit."""
    first, *others = gathered(x, group)
    return all(other.equal(first) for other in others)


def pieces(tensors: Iterable[torch.Tensor]) -> int:
    """Count the pieces of memory that hold these tensors."""
    return len({t.untyped_storage().data_ptr() for t in tensors})


def row(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return all numbers in a row, padded with zeros to a multiple of the world size."""
    flat = nn.utils.parameters_to_vector(tensors).detach()
    return nn.functional.pad(flat, (0, -len(flat) % dist.get_world_size()))


def error_of(function: Callable, *args: object, **named: object) -> str:
    """Return type and first sentence of the error that a call raises, else "no error"."""
    try:
        function(*args, **named)
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {str(error).split('. ')[0].split(' before')[0]}"
    return "no error"
