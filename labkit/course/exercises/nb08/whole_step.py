"""A training run of four steps for exercise 08-4, whose every number is known beforehand.

A batch gives the mean of its rows as gradient, whole halves that fp16 holds: means over batches and
ranks are exact, so that what a wrong answer gives is known too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...compare import number
from ...exercise import Here

#: The steps, with their batches, the mean of their gradients, and whether a rank overflows.
STEPS = {
    "a step of 4 batches": (4, (3.0, 4.0), False),
    "a short step of 1 batch": (1, (0.375, 0.5), False),
    "a step that overflows": (2, (3.0, 4.0), True),
    "a short step after it": (1, (0.375, 0.5), False),
}
#: The scaler begins here, and doubles after two good steps; the schedule halves the rate.
SCALE, INTERVAL, RATE, GAMMA = 1024.0, 2, 0.5, 0.5
#: What is looked at after each step, and at the end.
LOOKS = ("the norm of {}", "the weights after {}", "the learning rate after {}")
END = ("the scale at the end", "the type in which the model computes")
LABELS = (*(look.format(step) for step in STEPS for look in LOOKS), *END)


class Net(nn.Module):
    """Return the mean of its two lines over the batch as the loss; note their type.

    There are two parameters, so that the norm of all gradients is another than that of each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Linear(1, 1, bias=False) for _ in range(2))
        for line in (self.a, self.b):
            nn.init.ones_(line.weight)
        self.types: set[str] = set()

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        scores = self.a(batch[:, :1]) + self.b(batch[:, 1:])
        self.types.add(str(scores.dtype))
        return scores.float().mean()


def batches(step: str, rank: int, n: int) -> list[torch.Tensor]:
    """Return a rank's batches of a step, of two rows each.

    The mean over batches and ranks is the step's. Of a step that overflows, the last rank's first
    batch has an inf.
    """
    count, mean, overflows = STEPS[step]
    result = []
    for k in range(count):
        off = (rank - (n - 1) / 2) + 2 * (k - (count - 1) / 2)
        middle = torch.tensor([mean[0] + off, mean[1] - off])
        result.append(torch.stack([middle - 1, middle + 1]))
    if overflows and rank == n - 1:
        result[0][0, 0] = math.inf
    return result


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Train four steps; a hook in Python lets labkit count the all-reduces."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    net = Net().to(here.device)
    ddp = DistributedDataParallel(net)
    ddp.register_comm_hook(None, allreduce_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, GAMMA)
    scaler = torch.amp.GradScaler(here.device.type, init_scale=SCALE, growth_interval=INTERVAL)
    seen: list[Any] = []
    for step, (_, _, overflows) in STEPS.items():
        own = [batch.to(here.device) for batch in batches(step, here.rank, here.world_size)]
        norm = number(answer(ddp, own, optimizer, scaler, schedule))
        if overflows and isinstance(norm, float):
            norm = math.inf if not math.isfinite(norm) else norm  # or nan, as the sum has it
        seen += [norm, _weights(net), schedule.get_last_lr()[0]]
    return [*seen, scaler.get_scale(), ", ".join(sorted(net.types))]


def _weights(net: Net) -> list[float]:
    return [round(line.weight.item(), 6) for line in (net.a, net.b)]


def expected(n: int) -> list[list[Any]]:
    weights, rate, seen = [1.0, 1.0], RATE, []
    for _, mean, overflows in STEPS.values():
        norm = math.inf if overflows else math.hypot(*mean)
        if not overflows:
            cut = min(1.0, 1 / norm)
            weights = [w - rate * cut * g for w, g in zip(weights, mean, strict=True)]
            rate *= GAMMA
        seen += [norm, [round(w, 6) for w in weights], rate]
    return [[*seen, SCALE, "torch.float16"]] * n


def look(rank_s: Any, what: str) -> list[Any]:
    """Return one kind of value of a rank, for all steps: "norm", "weights" or "rate"."""
    place = ("norm", "weights", "rate").index(what)
    return list(rank_s[place : len(STEPS) * len(LOOKS) : len(LOOKS)])
