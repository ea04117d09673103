"""Exercise 09-4: take a step with a loss that is scaled, and skip one that overflows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn

from ...exercise import Exercise, Here, Mistake
from ...mistakes import every_rank
from .facts import Facts, fact

#: Where GradScaler begins by default.
SCALE = 65536.0
RATE = 1e6
LABEL = 1e-8
SCALED = "backward() is called on the loss times"
MOVED = "moved, in steps of float32"
AFTERWARDS = "moved by the next step"


def _net() -> nn.Linear:
    net = nn.Linear(8, 1, bias=False)
    nn.init.zeros_(net.weight)
    return net


def _images(rank: int) -> torch.Tensor:
    return torch.full((4, 8), rank + 1.0)


def _labels() -> torch.Tensor:
    return torch.full((4, 1), LABEL)


def trial(answer: Callable[..., Any], here: Here) -> Facts:
    """Take a step with tiny gradients, one that overflows on the last rank, and the first again."""
    net = nn.parallel.DistributedDataParallel(_net().to(here.device))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    scaler = torch.amp.GradScaler(here.device.type, init_scale=SCALE)
    types: list[str] = []
    net.register_forward_hook(lambda module, x, out: types.append(str(out.dtype)))
    images, labels = _images(here.rank).to(here.device), _labels().to(here.device)
    losses: list[float] = []
    back = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **options: Any) -> None:
        loss = tensors[0] if isinstance(tensors, Sequence) else tensors
        losses.append(loss.item())
        back(tensors, *args, **options)

    with mock.patch.object(torch.autograd, "backward", backward):
        answer(net, optimizer, scaler, images, labels)
    weight = net.module.weight.detach()
    moved, before = weight.mean().item() / _moved(here.world_size), weight.clone()
    answer(
        net, optimizer, scaler, images * (1e9 if here.rank == here.world_size - 1 else 1), labels
    )
    facts = {
        "forward in": types[0] if types else "nothing",
        SCALED: round(losses[0] / LABEL**2, 2) if losses else 0.0,
        MOVED: round(moved, 2),
        "moved by an overflow": not net.module.weight.equal(before),
        "scale after it": scaler.get_scale(),
    }
    with torch.no_grad():
        net.module.weight.zero_()
    answer(net, optimizer, scaler, images, labels)
    again = net.module.weight.detach().mean().item() / _moved(here.world_size)
    return {**facts, AFTERWARDS: round(again, 2)}


def _moved(world_size: int) -> float:
    """Return how far one process moves the weights in float32."""
    net = _net()
    images = torch.cat([_images(rank) for rank in range(world_size)])
    F.mse_loss(net(images), _labels().repeat(world_size, 1)).backward()
    assert net.weight.grad is not None
    return -RATE * net.weight.grad.mean().item()


def expected(world_size: int) -> list[Facts]:
    """Move as in float32; skip what overflows, and halve the scale."""
    facts = {
        "forward in": "torch.float16",
        SCALED: SCALE,
        MOVED: 1.0,
        "moved by an overflow": False,
        "scale after it": SCALE / 2,
        AFTERWARDS: 1.0,
    }
    return [facts] * world_size


EXERCISE = Exercise(
    id="09-4",
    title="Scale the loss",
    answer="scaled_step",
    setup="""
        import torch.nn.functional as F
        from torch.nn.parallel import DistributedDataParallel as DDP
    """,
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "scaler.step() was called twice with no scaler.update() in between: end each step "
            "with scaler.update().",
            raises=r"step\(\) has already been called since the last update",
        ),
        Mistake(
            "scaler.update() found no step of the scaler before it: first comes "
            "scaler.step(optimizer), which divides the gradients by the scale; optimizer.step() "
            "does not.",
            raises=r"No inf checks were recorded prior to update",
        ),
        Mistake(
            "net was not called. DDP averages the gradients of what goes through net(images), not "
            "of what goes through net.module.",
            when=fact("forward in", lambda kind, n: kind == "nothing"),
        ),
        Mistake(
            "The forward pass does not run in float16: put it inside torch.autocast with "
            "dtype=torch.float16.",
            when=fact("forward in", lambda kind, n: kind in ("torch.float32", "torch.bfloat16")),
        ),
        Mistake(
            "The weights have not moved: the gradients are too small for float16. Call "
            "backward() on scaler.scale(loss).",
            when=lambda yours, expected, n: yours[0][MOVED] == 0 and yours[0][SCALED] == 1,
        ),
        Mistake(
            "The step is too large, by about the factor of the scale: optimizer.step() does not "
            "undo the scaling, scaler.step(optimizer) does.",
            when=lambda yours, expected, n: (
                round(yours[0][MOVED] / SCALE, 1) == 1 and yours[0][SCALED] == SCALE
            ),
        ),
        Mistake(
            "The step is taken twice: scaler.step(optimizer) calls optimizer.step() itself.",
            when=fact(MOVED, lambda moved, n: moved == 2),
        ),
        Mistake(
            "A step was taken although some gradients were inf or nan: scaler.step(optimizer) "
            "skips such a step.",
            when=every_rank(lambda mine, its: mine["moved by an overflow"] and mine[MOVED] == 1),
        ),
        Mistake(
            "The step after an overflow is skipped too: the inf is still in the gradients, and the "
            "next ones are added to it. Begin with optimizer.zero_grad().",
            when=every_rank(lambda mine, its: mine == {**its, AFTERWARDS: 0.0}),
        ),
        Mistake(
            "After an overflow the scale has to be halved: end each step with scaler.update().",
            when=every_rank(lambda mine, its: mine == {**its, "scale after it": SCALE}),
        ),
    ),
    hints=(
        "Three calls of the scaler: one for the loss, one for the step, one at the end.",
        "scaler.scale(loss).backward() makes the gradients large enough for float16.",
        "Then scaler.step(optimizer), which divides them again, and scaler.update().",
    ),
)
