"""Exercise 08-2: convert the model, wrap it, and train it under autocast, in the right order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake, Wrong
from .facts import Facts, has


def _same_everywhere(vector: torch.Tensor) -> bool:
    """Tell on every rank whether all ranks hold the same bits."""
    everyone = [torch.empty_like(vector) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, vector)
    return all(other.equal(vector) for other in everyone)


class _Probe(nn.Module):
    """Note whether autocast is on when forward and backward pass here."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, bool] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind = x.device.type
        self.seen["forward"] = torch.is_autocast_enabled(kind)
        if x.requires_grad:
            x.register_hook(
                lambda _: self.seen.__setitem__("backward", torch.is_autocast_enabled(kind))
            )
        return x


def trial(answer: Callable[..., Any], here: Here) -> Facts | None:
    """Train two steps, on other images on each rank; return what holds afterwards."""
    torch.manual_seed(here.rank)
    probe = _Probe()
    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), probe, nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(8 * 6 * 6, 10)).to(here.device)
    batches = [
        (
            torch.rand(4, 1, 8, 8, device=here.device),
            torch.arange(4, device=here.device) + here.rank % 4,
        )
        for _ in range(2)
    ]
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
        "autocast in forward": probe.seen.get("forward", False),
        "autocast in backward": probe.seen.get("backward", False),
    }


def expected(world_size: int) -> list[Facts]:
    """Say what holds when all is in order."""
    facts = {
        "equal on every rank": True,
        "norm layer": "GroupNorm",
        "norm layer trained": True,
        "autocast in forward": True,
        "autocast in backward": False,
    }
    return [facts] * world_size


EXERCISE = Exercise(
    id="08-2",
    title="Convert, wrap, cast",
    answer="train_mixed",
    setup="""
        import torch.nn.functional as F
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel as DDP


        def to_group_norm(net):
            for name, child in net.named_children():
                if isinstance(child, nn.BatchNorm2d):
                    setattr(net, name, nn.GroupNorm(4, child.num_features).to(device))
                else:
                    to_group_norm(child)
            return net
    """,
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "DDP waits for gradients of layers that are no longer there: the model was converted "
            "after it had been wrapped. Wrap last.",
            raises=r"!tensors\.empty\(\) INTERNAL ASSERT FAILED",
            shown_by={
                "wraps first": edit(
                    "ddp = DDP(to_group_norm(model))",
                    """
                    ddp = DDP(model)
                    to_group_norm(ddp)
                    """,
                ),
            },
        ),
        Mistake(
            "The model is not converted: BatchNorm takes its statistics from one rank's share.",
            when=has(norm_layer="BatchNorm2d"),
            shown_by={
                "does not convert": edit("ddp = DDP(to_group_norm(model))", "ddp = DDP(model)")
            },
        ),
        Mistake(
            "The optimizer holds the parameters of the layers that were replaced: make it after "
            "the conversion.",
            when=has(norm_layer_trained=False, norm_layer="GroupNorm"),
            shown_by={
                "makes the optimizer first": edit(
                    "ddp = DDP(to_group_norm(model))",
                    """
                    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                    ddp = DDP(to_group_norm(model))
                    """,
                    "optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)",
                    "",
                ),
            },
        ),
        Mistake(
            "Each rank has trained a model of its own: call the wrapped model, not the one in it.",
            when=has(equal_on_every_rank=False),
            shown_by={"calls the model inside": edit("ddp(images)", "model(images)")},
        ),
        Mistake(
            "The forward pass runs in float32: compute the scores inside torch.autocast.",
            when=has(autocast_in_forward=False),
            shown_by={
                "no autocast": edit(
                    """
                    with torch.autocast(device.type, dtype=torch.bfloat16):
                        loss = F.cross_entropy(ddp(images), labels)
                    loss.backward()
                    """,
                    "F.cross_entropy(ddp(images), labels).backward()",
                ),
            },
        ),
        Mistake(
            "backward() stands inside the autocast block. It takes each operation's type from "
            "the forward pass: end the block before it.",
            when=has(autocast_in_backward=True),
            shown_by={
                "backward under autocast": body("""
                    ddp = DDP(to_group_norm(model))
                    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
                    for images, labels in batches:
                        optimizer.zero_grad()
                        with torch.autocast(device.type, dtype=torch.bfloat16):
                            F.cross_entropy(ddp(images), labels).backward()
                        optimizer.step()
                    return ddp
                """),
            },
        ),
    ),
    also_wrong={
        "returns nothing": Wrong(body("print(DDP(to_group_norm(model)))"), says="nothing"),
    },
    another=body("""
        to_group_norm(model)
        wrapped = DDP(model)
        cast = torch.autocast(device.type, dtype=torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in batches:
            with cast:
                scores = wrapped(images)
                loss = nn.CrossEntropyLoss()(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return wrapped
    """),
    hints=(
        "What changes the parameters comes before DDP; what uses them, after it.",
        "to_group_norm(model), then DDP(model), then the optimizer from its parameters.",
        "In the loop: zero_grad; with torch.autocast(device.type, dtype=torch.bfloat16): loss = "
        "…; and outside of the block loss.backward() and step().",
    ),
)
