"""How exercise 09-3 is tried: a model with BatchNorm, and what is noted while it is trained."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...exercise import Here
from .facts import Facts

RATE, STEPS = 0.1, 3
#: How far weights may be from those of one process, by rounding to 16 bits.
NEAR = 2e-3
#: Per step, images and labels of each rank.
Batches = list[list[tuple[torch.Tensor, torch.Tensor]]]


def _same_everywhere(vector: torch.Tensor) -> bool:
    """Return on every rank whether all ranks hold the same bits."""
    everyone = [torch.empty_like(vector) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, vector)
    return all(other.equal(vector) for other in everyone)


class _Probe(nn.Module):
    """Note whether autocast is on, and with which type, when forward and backward pass here."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, Any] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind = x.device.type
        self.seen["forward"] = torch.is_autocast_enabled(kind)
        self.seen["type"] = _name(torch.get_autocast_dtype(kind))
        if x.requires_grad:
            x.register_hook(
                lambda _: self.seen.__setitem__("backward", torch.is_autocast_enabled(kind))
            )
        return x


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@contextlib.contextmanager
def _noting() -> Iterator[dict[str, Any]]:
    """Record what the learner's code makes: how often DDP wraps, and of which type the losses
    are."""
    seen: dict[str, Any] = {"wrapped": 0, "losses": []}
    wrap, back = DistributedDataParallel.__init__, torch.autograd.backward

    def wrapping(self: Any, *args: Any, **options: Any) -> None:
        seen["wrapped"] += 1
        wrap(self, *args, **options)

    def backward(tensors: Any, *args: Any, **options: Any) -> None:
        loss = tensors[0] if isinstance(tensors, Sequence) else tensors
        seen["losses"].append(_name(loss.dtype))
        back(tensors, *args, **options)

    with (
        mock.patch.object(DistributedDataParallel, "__init__", wrapping),
        mock.patch.object(torch.autograd, "backward", backward),
    ):
        yield seen


def _in_one_process(model: nn.Module, batches: Batches, kind: str) -> list[torch.Tensor]:
    """Train a copy of the model with the images of all ranks: what DDP has to come to."""
    for name, child in list(model.named_children()):
        if isinstance(child, nn.BatchNorm2d):
            setattr(model, name, nn.GroupNorm(4, child.num_features).to(child.weight.device))
    for step in batches:
        grads = [torch.zeros_like(p) for p in model.parameters()]
        for images, labels in step:
            model.zero_grad()
            with torch.autocast(kind, dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            for total, p in zip(grads, model.parameters(), strict=True):
                assert p.grad is not None
                total += p.grad / len(step)
        with torch.no_grad():
            for total, p in zip(grads, model.parameters(), strict=True):
                p.sub_(RATE * total)
    return list(model.parameters())


def _batch(rank: int, step: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return four images and labels, different on each rank and in each step."""
    draw = torch.Generator().manual_seed(100 * rank + step)
    labels = torch.arange(4) + rank % 4 + step % 2
    return torch.rand(4, 1, 8, 8, generator=draw).to(device), labels.to(device)


def trial(answer: Callable[..., Any], here: Here) -> Facts | None:
    """Train three steps, on different images on each rank; return what holds afterwards."""
    torch.manual_seed(0)
    probe = _Probe()
    first = nn.Conv2d(1, 8, 3)
    layers = [first, nn.BatchNorm2d(8), nn.ReLU(), probe, nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(8 * 6 * 6, 10)).to(here.device)
    start = first.weight.detach().clone()  # DDP brings rank 0's
    wanted = _in_one_process(
        copy.deepcopy(model),
        [[_batch(r, step, here.device) for r in range(here.world_size)] for step in range(STEPS)],
        here.device.type,
    )
    if here.rank:  # DDP has to bring rank 0's weights
        with torch.no_grad():
            for p in model.parameters():
                p.add_(here.rank)
    batches = [_batch(here.rank, step, here.device) for step in range(STEPS)]
    with _noting() as seen:
        net = answer(model, batches)
    if net is None:
        return None
    if not isinstance(net, nn.Module):
        raise TypeError(f"It returns {type(net).__name__}, not the trained model.")
    norms = [layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm)]
    trained = any(bool((layer.weight != 1).any()) for layer in norms)
    return {
        "equal on every rank": _same_everywhere(
            nn.utils.parameters_to_vector(net.parameters()).detach()
        ),
        "norm layer": " and ".join(type(layer).__name__ for layer in norms),
        "norm layer trained": trained,
        "convolution trained": not start.equal(first.weight),
        "autocast in forward": probe.seen.get("forward", False),
        "autocast in backward": probe.seen.get("backward", False),
        "type of autocast": probe.seen.get("type", ""),
        "type of the loss": " and ".join(dict.fromkeys(seen["losses"])),
        "steps": len(seen["losses"]),
        "models wrapped": seen["wrapped"],
        "returns the wrapped model": isinstance(net, DistributedDataParallel),
        "weights as one process has": same_weights(list(net.parameters()), wanted),
    }


def same_weights(yours: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> bool:
    """Return whether weights agree but for the rounding of 16-bit sums."""
    return len(yours) == len(wanted) and all(
        y.shape == w.shape and torch.allclose(y.detach().float(), w.detach(), atol=NEAR, rtol=0)
        for y, w in zip(yours, wanted, strict=True)
    )


def expected(world_size: int) -> list[Facts]:
    """Return what holds when all is in order."""
    facts = {
        "equal on every rank": True,
        "norm layer": "GroupNorm",
        "norm layer trained": True,
        "convolution trained": True,
        "autocast in forward": True,
        "autocast in backward": False,
        "type of autocast": "bfloat16",
        "type of the loss": "float32",
        "steps": STEPS,
        "models wrapped": 1,
        "returns the wrapped model": True,
        "weights as one process has": True,
    }
    return [facts] * world_size
