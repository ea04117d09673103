"""Try a function that averages gradients while backward() runs: networks, an oracle, and notes.

Everything is computed on every rank for all ranks, so that a rank can say by itself what its
gradients are: the mean, its own, or something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

#: In and out of each layer of the chain, and its cap in bytes: the last layer's bias and weight
#: make exactly one bucket.
CHAIN, CAP = ((3, 5), (5, 4), (4, 2)), 80
STEPS = 2

MEAN, OWN, SUM, AGAIN, OLD, OTHER = (
    "the mean",
    "this rank's own",
    "the sum",
    "the mean, divided by world_size again",
    "the mean of the step before",
    "neither the mean nor its own",
)

#: What other cells of the notebook define.
SETUP = """
from collections.abc import Callable
from torch import nn


def async_all_reduce(x):
    return dist.all_reduce(x, async_op=True)


def start(bucket, all_reduce=async_all_reduce):
    flat = torch.cat([p.grad.flatten() for p in bucket]) / world_size
    return flat, all_reduce(flat)


def finish(bucket, flat, work):
    work.wait()
    for p, piece in zip(bucket, flat.split([p.numel() for p in bucket])):
        p.grad.copy_(piece.view_as(p))


def average_bucket(bucket, all_reduce=async_all_reduce):
    finish(bucket, *start(bucket, all_reduce))


def cut(net, cap):
    buckets = [[]]
    for p in reversed(list(net.parameters())):
        if sum(q.nbytes for q in buckets[-1]) >= cap:
            buckets.append([])
        buckets[-1].append(p)
    return buckets


def broadcast_weights(net):
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
"""


class _Mark(torch.autograd.Function):
    """Change nothing, and call a function when backward() comes by."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, call: Callable[[], None]) -> torch.Tensor:
        ctx.call = call
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        ctx.call()
        return grads[0], None


def chain(rank: int, device: torch.device | None = None) -> nn.Sequential:
    """Return the layers of the chain, with weights that differ from rank to rank."""
    random = torch.Generator().manual_seed(rank)
    net = nn.Sequential(*(nn.Linear(*sides, dtype=torch.float64) for sides in CHAIN))
    for p in net.parameters():
        p.data = torch.randn(p.shape, generator=random, dtype=p.dtype)
    return net.to(device)


def loss_of_chain(
    net: nn.Sequential, rank: int, step: int, mark: Callable[[], None] = lambda: None
) -> torch.Tensor:
    """Return a rank's loss; ``mark`` is called when only the first layer is left to backward()."""
    random = torch.Generator().manual_seed(100 + 10 * step + rank)
    x = torch.randn(4, CHAIN[0][0], generator=random, dtype=torch.float64)
    first, *others = net
    x = _Mark.apply(first(x.to(_device(net))), mark)
    for layer in others:
        x = layer(x)
    return x.square().mean()


def pair(device: torch.device | None = None) -> nn.ModuleList:
    """Return two layers of the same shape, equal on all ranks."""
    layers = nn.ModuleList(nn.Linear(2, 2, dtype=torch.float64) for _ in range(2))
    for k, p in enumerate(layers.parameters()):
        p.data = torch.arange(p.numel(), dtype=p.dtype).view_as(p) + k
    return layers.to(device)


def loss_of_pair(layers: nn.ModuleList, rank: int) -> torch.Tensor:
    """Return a rank's loss: odd ranks use the two layers in the opposite order."""
    first, second = layers if rank % 2 == 0 else list(layers)[::-1]
    x = torch.ones(1, 2, dtype=torch.float64, device=_device(layers)) * (rank + 1)
    return second(first(x)).sum()


def _device(net: nn.Module) -> torch.device:
    return next(net.parameters()).device


def gradients(net: nn.Module, loss: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a network that nobody averages."""
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])


def name_of(
    net: nn.Module, everyone: Sequence[torch.Tensor], rank: int, old: torch.Tensor | None = None
) -> str:
    """Return what the gradients of a network are; ``everyone`` has those of all ranks."""
    if any(p.grad is None for p in net.parameters()):
        return "None"
    found = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
    total = torch.stack(list(everyone)).sum(dim=0)
    mean = total / len(everyone)
    known = {MEAN: mean, OWN: everyone[rank], SUM: total, AGAIN: mean / len(everyone)}
    if old is not None:
        known[OLD] = old
    return next((name for name, g in known.items() if torch.allclose(found, g)), OTHER)
