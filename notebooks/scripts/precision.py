"""Look into training in mixed precision: gradients, the types of layers' outputs, and times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from race import clock
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import labkit


class Batches:
    """Give every rank its part of the same images, step by step."""

    def __init__(self, rank: int, world_size: int, device: torch.device, size: int = 200) -> None:
        self.images, self.labels = labkit.datasets.mnist_tensors(train=True, size="subset")
        self.mine, self.size, self.device = slice(rank, None, world_size), size, device

    def __call__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this rank's images and labels of a step's batch."""
        shuffle = torch.Generator().manual_seed(step)
        order = torch.randperm(len(self.images), generator=shuffle)[: self.size][self.mine]
        return self.images[order].to(self.device), self.labels[order].to(self.device)


def gradient(net: nn.Module) -> torch.Tensor:
    """Return all gradients as one vector."""
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


def weights(net: nn.Module) -> torch.Tensor:
    """Return a copy of all parameters as one vector."""
    return nn.utils.parameters_to_vector(net.parameters()).detach().clone()


def output_types(net: nn.Module) -> dict[str, torch.dtype]:
    """Return a dictionary that each forward pass fills: kind of layer -> type of its output."""
    types: dict[str, torch.dtype] = {}

    def note(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        types[type(layer).__name__] = output.dtype

    for layer in net.modules():
        if not list(layer.children()):
            layer.register_forward_hook(note)
    return types


def wide_net(width: int, device: torch.device) -> nn.Module:
    """Return a net with two hidden layers, the same on every rank."""
    torch.manual_seed(0)
    hidden = [nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, 10)).to(device)


def loss_in(dtype: torch.dtype, net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the loss, computed under autocast if the type has 16 bits."""
    with torch.autocast(x.device.type, dtype=dtype, enabled=dtype != torch.float32):
        return F.cross_entropy(net(x), y)


def race(
    kinds: Mapping[str, torch.dtype],
    width: int,
    x: torch.Tensor,
    y: torch.Tensor,
    group: dist.ProcessGroup,
    turns: int = 9,
) -> dict[str, list[float]]:
    """Return the seconds of each turn for a step of DDP in each precision.

    They take turns, as in ``race.py``, and the slowest rank of each turn counts.

    Raises
    ------
    AssertionError
        If a precision's loss differs by more than 5 % from that of the first: then its time would
        mean nothing.
    """
    net = DistributedDataParallel(wide_net(width, x.device), process_group=group)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = [loss_in(dtype, net, x, y).item() for dtype in kinds.values()]
    assert all(abs(loss / losses[0] - 1) < 0.05 for loss in losses), losses

    def step(dtype: torch.dtype, _: torch.Tensor, n: int) -> None:
        optimizer.zero_grad()
        loss_in(dtype, net, x, y).backward()
        optimizer.step()

    steps = [partial(step, dtype) for dtype in kinds.values()]
    return dict(zip(kinds, clock(steps, x, group, turns), strict=True))
