"""Exercise 07-4: save all that the next step depends on, as a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...answers import body, edit, whole
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

PARTS = ("net", "optimizer", "scaler")


def _training(
    seed: int, device: torch.device
) -> tuple[nn.Linear, torch.optim.Optimizer, torch.amp.GradScaler]:
    torch.manual_seed(seed)
    net = nn.Linear(3, 2).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return net, optimizer, torch.amp.GradScaler(device.type, init_scale=4.0, growth_interval=2)


def _go_on(net: nn.Module, optimizer: Any, scaler: Any, steps: int) -> None:
    device = next(net.parameters()).device
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.arange(3.0, device=device) + step
        scaler.scale(net(x).square().sum() / 100).backward()
        scaler.step(optimizer)
        scaler.update()


def trial(answer: Callable[..., Any], here: Here) -> Any:
    """Snap, go on, and come back with new objects: is it the same?"""
    net, optimizer, scaler = _training(here.rank, here.device)
    _go_on(net, optimizer, scaler, 3)
    snap = answer(net, optimizer, scaler)
    if not isinstance(snap, dict):
        return snap
    _go_on(net, optimizer, scaler, 3)
    again, its_optimizer, its_scaler = _training(here.rank + 100, here.device)
    parts: tuple[Any, ...] = (again, its_optimizer, its_scaler)
    for key, part in zip(PARTS, parts, strict=True):
        if key in snap:
            part.load_state_dict(snap[key])
    _go_on(again, its_optimizer, its_scaler, 3)
    return {
        "saved": sorted(key for key in PARTS if key in snap),
        "same weights": torch.equal(net.weight, again.weight),
        "same scale": scaler.get_scale() == its_scaler.get_scale(),
    }


def expected(n: int) -> list[dict[str, Any]]:
    """Everything is saved, and resuming gives the same."""
    return [{"saved": sorted(PARTS), "same weights": True, "same scale": True}] * n


def _lacks(part: str) -> When:
    return lambda yours, expected, n: all(
        isinstance(mine, dict) and part not in mine["saved"] for mine in yours
    )


EXERCISE = Exercise(
    id="07-4",
    title="Save all that a step depends on",
    answer="snapshot",
    setup="from copy import deepcopy",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "The scaler is missing, so a resumed run starts with a different scale.",
            when=_lacks("scaler"),
            shown_by={
                "without the scaler": body("""
                    return deepcopy({"net": net.state_dict(), "optimizer": optimizer.state_dict()})
                """),
            },
        ),
        Mistake(
            "The optimizer is missing, and with it the momentum.",
            when=_lacks("optimizer"),
            shown_by={
                "without the optimizer": body("""
                    return deepcopy({"net": net.state_dict(), "scaler": scaler.state_dict()})
                """),
            },
        ),
        Mistake(
            "A state_dict refers to the tensors themselves. Training goes on to change them, and "
            "your snapshot changes with them: copy it, with deepcopy.",
            when=lambda yours, expected, n: all(
                mine["saved"] == sorted(PARTS) and not mine["same weights"] for mine in yours
            ),
            shown_by={
                "a reference": edit(
                    "return deepcopy({name: part.state_dict() for name, part in parts.items()})",
                    "return {name: part.state_dict() for name, part in parts.items()}",
                ),
                "a shallow copy": edit(
                    "return deepcopy({name: part.state_dict() for name, part in parts.items()})",
                    "return {name: dict(part.state_dict()) for name, part in parts.items()}",
                ),
            },
        ),
    ),
    another=whole("""
        import io


        def snapshot(net, optimizer, scaler):
            file = io.BytesIO()
            own = {"steps": 3}  # more than is asked for does no harm
            parts = {"net": net, "optimizer": optimizer, "scaler": scaler}
            torch.save(own | {name: part.state_dict() for name, part in parts.items()}, file)
            file.seek(0)
            return torch.load(file)
    """),
    hints=(
        "Three things remember something from step to step: the net, the optimizer and the "
        "scaler. Each has a state_dict().",
        "A net's state_dict refers to its tensors, which the next step changes. What copies a "
        "dictionary together with everything in it?",
        'Build one dictionary: under "net", "optimizer" and "scaler" the state_dict() of '
        "each. deepcopy copies all of it at once.",
    ),
)
