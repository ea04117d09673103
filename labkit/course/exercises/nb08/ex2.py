"""Exercise 08-2: convert the model, wrap it, and train it under autocast, in the right order."""

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

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake, Wrong
from .facts import Facts, fact, has

RATE, STEPS = 0.1, 3
#: How far weights may be from those of one process, by rounding to 16 bits.
NEAR = 2e-3
#: Per step, images and labels of each rank.
Batches = list[list[tuple[torch.Tensor, torch.Tensor]]]


def _same_everywhere(vector: torch.Tensor) -> bool:
    """Tell on every rank whether all ranks hold the same bits."""
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
    """Note what the learner's code makes: how often DDP wraps, and of which type the losses are."""
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
    """Return four images and labels, others on each rank and in each step."""
    draw = torch.Generator().manual_seed(100 * rank + step)
    labels = torch.arange(4) + rank % 4 + step % 2
    return torch.rand(4, 1, 8, 8, generator=draw).to(device), labels.to(device)


def trial(answer: Callable[..., Any], here: Here) -> Facts | None:
    """Train three steps, on other images on each rank; return what holds afterwards."""
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
    """Tell whether weights agree but for the rounding of 16-bit sums."""
    return len(yours) == len(wanted) and all(
        y.shape == w.shape and torch.allclose(y.detach(), w.detach(), atol=NEAR, rtol=0)
        for y, w in zip(yours, wanted, strict=True)
    )


def expected(world_size: int) -> list[Facts]:
    """Say what holds when all is in order."""
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
            "DDP waits for gradients of layers that no longer exist: the model was converted "
            "after it had been wrapped. Convert first, then wrap.",
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
            "The model is not converted: BatchNorm takes its statistics from one rank's images "
            "only. Call to_group_norm before you wrap.",
            when=has(norm_layer="BatchNorm2d"),
            shown_by={
                "does not convert": edit("ddp = DDP(to_group_norm(model))", "ddp = DDP(model)")
            },
        ),
        Mistake(
            "The optimizer holds the parameters of the layers that were replaced: create it "
            "after the conversion.",
            when=has(norm_layer_trained=False, norm_layer="GroupNorm", convolution_trained=True),
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
            "Each rank has trained its own model: call the wrapped model, not the one inside it.",
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
            "backward() is inside the autocast block. It uses the types of the forward pass "
            "anyway: end the block before it.",
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
        Mistake(
            "autocast is not asked for bfloat16. In float16 small gradients vanish unless a "
            "scaler is used: pass dtype=torch.bfloat16.",
            when=fact("type of autocast", lambda kind, n: kind != "bfloat16"),
            shown_by={"casts to float16": edit("torch.bfloat16", "torch.float16")},
        ),
        Mistake(
            "The loss is computed outside autocast, in 16 bits: move it into the block, where "
            "autocast computes cross entropy in float32.",
            when=has(type_of_the_loss="bfloat16"),
            shown_by={
                "the loss outside": edit(
                    "loss = F.cross_entropy(ddp(images), labels)",
                    "scores = ddp(images)",
                    "loss.backward()",
                    "F.cross_entropy(scores, labels).backward()",
                ),
            },
        ),
        Mistake(
            "The model is wrapped more than once. Create DDP and the optimizer once, before the "
            "loop: DDP's constructor sends all weights to all ranks, and a new optimizer has no "
            "state.",
            when=fact("models wrapped", lambda times, n: times > 1),
            shown_by={
                "wraps for each batch": body("""
                    for images, labels in batches:
                        ddp = DDP(to_group_norm(model))
                        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
                        optimizer.zero_grad()
                        with torch.autocast(device.type, dtype=torch.bfloat16):
                            loss = F.cross_entropy(ddp(images), labels)
                        loss.backward()
                        optimizer.step()
                    return ddp
                """),
            },
        ),
        Mistake(
            "It returns the model inside DDP: return the wrapped one, which DDP(…) gave.",
            when=has(returns_the_wrapped_model=False, models_wrapped=1),
            shown_by={"returns the module": edit("return ddp", "return ddp.module")},
        ),
        Mistake(
            f"Take one step per pair in batches: {STEPS} here.",
            when=fact("steps", lambda steps, n: steps != STEPS),
            shown_by={"one batch only": edit("in batches:", "in batches[:1]:")},
        ),
        Mistake(
            "No weight has changed: the optimizer never takes its step, or holds no parameter of "
            "this model.",
            when=has(convolution_trained=False),
            shown_by={"no step": edit("optimizer.step()", "")},
        ),
        Mistake(
            "The weights differ from those that one process gets from all images. Use SGD with "
            "lr=0.1 and nothing else (no momentum), and set the gradients to zero before each "
            "backward().",
            when=has(weights_as_one_process_has=False, equal_on_every_rank=True),
            shown_by={
                "another rate": edit("lr=0.1", "lr=0.01"),
                "momentum": edit("lr=0.1", "lr=0.1, momentum=0.9"),
                "no zero_grad": edit("optimizer.zero_grad()", ""),
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
        "What replaces parameters comes before DDP; what uses them comes after it.",
        "to_group_norm(model), then DDP(model), then the optimizer from its parameters.",
        "In the loop: zero_grad; with torch.autocast(device.type, dtype=torch.bfloat16): loss = "
        "…; and outside the block loss.backward() and step().",
    ),
)
