"""Exercise 07-2: clip the gradients of a scaled loss: unscale them first.

Nothing here computes in fp16 itself: powers of two and small integers give the same bits on every
processor, so what a wrong answer gives is known beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...answers import edit
from ...compare import number
from ...exercise import Exercise, Here, Mistake
from ...mistakes import When

#: The scale that the trial starts with, and how fast it learns.
START, RATE = 1024.0, 0.5
#: The norm to which each step's gradients are clipped.
MOST = {"long": 2.0, "overflow": 2.0, "short": 1.0}


def _slopes(rank: int, n: int) -> torch.Tensor:
    """Return an input whose mean over the ranks is (3, 4): a gradient of norm 5."""
    off_mean = rank - (n - 1) / 2
    return torch.tensor([[3.0 + off_mean, 4.0 - off_mean]])


def trial(answer: Callable[..., Any], here: Here) -> Any:
    """Take a step that is clipped, one that overflows and one that is short enough."""
    net = nn.Linear(2, 1, bias=False).to(here.device)
    nn.init.ones_(net.weight)
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=RATE)
    scaler = torch.amp.GradScaler(here.device.type, init_scale=START, growth_interval=1000)
    seen = {}
    for name, factor in (("long", 1.0), ("overflow", math.inf), ("short", 0.1)):
        loss = ddp(_slopes(here.rank, here.world_size).to(here.device)).sum() * factor
        norm = number(answer(ddp, loss, optimizer, scaler, MOST[name]))
        if name == "long":
            seen["norm"] = norm
        seen[name] = [round(w, 4) for w in net.weight.flatten().tolist()]
    return {**seen, "scale": scaler.get_scale()}


def expected(n: int) -> list[dict[str, Any]]:
    """Take the same steps by hand: (3, 4) is cut to (1.2, 1.6), (0.3, 0.4) is short enough."""
    first = [round(1 - RATE * 1.2, 4), round(1 - RATE * 1.6, 4)]
    last = [round(first[0] - RATE * 0.3, 4), round(first[1] - RATE * 0.4, 4)]
    result = {"norm": 5.0, "long": first, "overflow": first, "short": last, "scale": START / 2}
    return [result] * n


def _shows(**wanted: Any) -> When:
    """Return the predicate of a mistake that leaves these values on every rank."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return all(
            torch.allclose(torch.tensor(mine[key]), torch.tensor(value), 1e-3)
            for mine in yours
            for key, value in wanted.items()
        )

    return when


EXERCISE = Exercise(
    id="07-2",
    title="Clip with a scaler",
    answer="clipped_step",
    setup="from torch import nn",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "The scaler refuses a second step before update(): end each step with scaler.update().",
            raises=r"being called after step\(\)|already been called since the last update",
            shown_by={
                "never updates": edit("scaler.update()", ""),
                "never updates nor unscales": edit(
                    "scaler.unscale_(optimizer)", "", "scaler.update()", ""
                ),
            },
        ),
        Mistake(
            "The loss was never scaled: call scaler.scale(loss).backward().",
            raises=r"Attempted \w+ but _scale is None|outputs? earlier in the iteration",
            shown_by={"never scales": edit("scaler.scale(loss).backward()", "loss.backward()")},
        ),
        Mistake(
            "You clip scaled gradients: their norm is 1,024 times too large, so that hardly "
            "anything is left after clipping and unscaling. Call scaler.unscale_(optimizer) "
            "before you clip.",
            when=_shows(norm=5 * START),
            shown_by={
                "clips scaled gradients": edit("scaler.unscale_(optimizer)", ""),
                "unscales after it has clipped": edit(
                    "scaler.scale(loss).backward()",
                    """
                    scaler.scale(loss).backward()
                    norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)
                    """,
                    "norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)",
                    "",
                ),
            },
        ),
        Mistake(
            "The overflow has reached the weights: optimizer.step() takes every step, "
            "scaler.step(optimizer) skips those with inf or nan.",
            when=lambda yours, expected, n: all(
                not any(math.isfinite(w) for w in mine["overflow"]) for mine in yours
            ),
            shown_by={"steps by itself": edit("scaler.step(optimizer)", "optimizer.step()")},
        ),
        Mistake(
            "The gradients of the previous step are still there, and so is its inf: begin with "
            "optimizer.zero_grad().",
            when=_shows(overflow=[0.4, 0.2], short=[0.4, 0.2]),
            shown_by={"keeps old gradients": edit("optimizer.zero_grad()", "")},
        ),
        Mistake(
            "The weights move by the unclipped gradient: clip between unscale_ and step.",
            when=_shows(long=[-0.5, -1.0]),
            shown_by={
                "clips after the step": edit(
                    "scaler.unscale_(optimizer)",
                    """
                    scaler.unscale_(optimizer)
                    scaler.step(optimizer)
                    """,
                    "scaler.step(optimizer)",
                    "",
                ),
            },
        ),
        Mistake(
            "The gradients are clipped to norm 1 where max_norm is 2: pass max_norm on to "
            "clip_grad_norm_.",
            when=_shows(norm=5.0, long=[0.7, 0.6]),
            shown_by={
                "always clips to one": edit("net.parameters(), max_norm", "net.parameters(), 1.0")
            },
        ),
        Mistake(
            "The step is right, but the norm is not returned: return what clip_grad_norm_ returns.",
            when=lambda yours, expected, n: all(
                mine["norm"] is None and mine["short"] == its["short"]
                for mine, its in zip(yours, expected, strict=True)
            ),
            shown_by={"returns nothing": edit("norm = nn", "nn", "return norm", "")},
        ),
    ),
    another=edit(
        "optimizer.zero_grad()",
        "net.zero_grad()",
        "norm = nn.utils.clip_grad_norm_(net.parameters(), max_norm)",
        """
        gradients = [p.grad for p in net.parameters()]
        norm = torch.stack([g.square().sum() for g in gradients]).sum().sqrt().item()
        for g in gradients:
            g *= min(1, max_norm / norm)
        """,
    ),
    hints=(
        "Gradients are scaled from backward() on. Something has to undo that before you clip.",
        "In this order: zero_grad, scale and backward, unscale_, clip, step, update.",
        "nn.utils.clip_grad_norm_(net.parameters(), max_norm) clips and returns the norm before "
        "clipping. Its place is between scaler.unscale_(optimizer) and scaler.step(optimizer).",
    ),
)
