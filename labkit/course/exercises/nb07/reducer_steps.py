"""Steps of training for exercise 07-1: gradients that arrive in an order which is asked for.

The buckets are equally large, so that ranks which start them in different orders do not wait for
each other: they get each other's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ...exercise import Here

#: The bucket of each parameter, and its length: four numbers in each bucket.
BUCKET = (0, 1, 1, 2, 2, 2)
LENGTH = (4, 1, 3, 2, 1, 1)
BUCKETS = 3
#: What the steps of the check are, and which reducer takes them.
STEPS = (
    "gradients arrive in the order of the buckets",
    "the same again",
    "bucket 1 is complete first",
    "they arrive in an order of the rank's own",
    "one bucket with all parameters",
)
TOO_EARLY = "start was called for a bucket before all of its gradients had arrived"
IN_A_HOOK = "collect was called during backward(), before finish()"


def arrivals(step: int, rank: int) -> list[int]:
    """Return the order in which the parameters' gradients arrive on a rank."""
    order = list(range(len(BUCKET)))
    if step == 2:
        return [1, 3, 2, 0, 5, 4]
    if step == 3:
        return order[-rank - 1 :] + order[: -rank - 1] if rank % 2 else order[::-1]
    return order


def gradient(step: int, rank: int, i: int) -> torch.Tensor:
    """Return a parameter's own gradient on a rank: whole numbers that tell which it is."""
    return torch.arange(1.0, LENGTH[i] + 1) + 10 * i + 100 * rank + 1000 * step


class Steps:
    """Parameters in buckets, whose gradients arrive in the order that is asked for."""

    def __init__(self, here: Here, whole: bool) -> None:
        self.here = here
        self.parameters = [nn.Parameter(torch.zeros(k, device=here.device)) for k in LENGTH]
        ids = range(1 if whole else BUCKETS)
        self.buckets = [
            [p for p, b in zip(self.parameters, BUCKET, strict=True) if whole or b == k]
            for k in ids
        ]
        self.order: list[int] = []
        self.counts: list[int] = []
        self.computing = False
        #: Ranks may start buckets in different orders: what arrives in one call stays together.
        self.sums: list[torch.Tensor] = []

    def start(self, bucket: Sequence[nn.Parameter]) -> int:
        """Record which bucket is started, and begin its average."""
        k = next(i for i, own in enumerate(self.buckets) if own[0] is bucket[0])
        if any(p.grad is None for p in bucket):
            raise RuntimeError(TOO_EARLY)
        flat = torch.cat([p.grad.flatten() for p in bucket if p.grad is not None])
        flat = flat / self.here.world_size
        dist.all_reduce(flat)
        self.order.append(k)
        self.sums.append(flat)
        return len(self.sums) - 1

    def collect(self, bucket: Sequence[nn.Parameter], started: int) -> None:
        """Write the average into the gradients."""
        if self.computing:
            raise RuntimeError(IN_A_HOOK)
        pieces = self.sums[started].split([p.numel() for p in bucket])
        for p, piece in zip(bucket, pieces, strict=True):
            assert p.grad is not None
            p.grad.copy_(piece.view_as(p))

    def note(self) -> None:
        """Record how many buckets have been started."""
        self.counts.append(len(self.order))

    def step(self, number: int, finish: Callable[[], Any]) -> dict[str, Any]:
        """Run one backward(); return how many buckets were started after each gradient, the order
        of all of them, and the gradients that are left."""
        self.order, self.counts = [], []
        for p in self.parameters:
            p.grad = None
        loss: Any = 0.0
        for i in reversed(arrivals(number, self.here.rank)):
            own = gradient(number, self.here.rank, i).to(self.here.device)
            loss = loss + (self.parameters[i] * own).sum()
        self.computing = True
        loss.backward()
        self.computing = False
        finish()
        left = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        return {
            "started after each gradient": list(self.counts),
            "order": list(self.order),
            "gradients": torch.cat(left).cpu(),
        }


def started(step: int, rank: int, turns: bool = True) -> list[list[int]]:
    """Return the buckets that have been started after each gradient, by DDP's rule; without
    ``turns`` a bucket starts when it is complete."""
    number = 1 if step == 4 else BUCKETS
    of = [0] * len(BUCKET) if step == 4 else BUCKET
    missing = [sum(b == k for b in of) for k in range(number)]
    order: list[int] = []
    found = []
    for i in arrivals(step, rank):
        missing[of[i]] -= 1
        if not turns and missing[of[i]] == 0:
            order.append(of[i])
        while turns and len(order) < number and missing[len(order)] == 0:
            order.append(len(order))
        found.append(list(order))
    return found
