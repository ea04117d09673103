"""Exercise 07-4: accumulate gradients over several batches, and reduce them once.

Rank r's numbers are small whole ones that depend on r, so that means and sums over ranks are exact
and tell who is in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, simulated
from ...slips import Formula

#: How many batches a rank has each time.
LENGTHS = (3, 1)


def _accumulating(rank: int, count: int) -> list[torch.Tensor]:
    """Return the inputs of a rank's batches, whole numbers that tell rank and batch."""
    return [torch.tensor([[1.0, k + 1.0]]) * (rank + 1) * (k + 1) for k in range(count)]


class _Line(nn.Module):
    """Add up the two columns of a batch, each times a weight: two parameters in one bucket."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(1, 1)), nn.Parameter(torch.ones(1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :1] @ self.a + x[:, 1:] @ self.b

    def gradient(self) -> torch.Tensor:
        parts = (self.a.grad, self.b.grad)
        return torch.cat([torch.zeros(1, 1) if p is None else p.cpu() for p in parts], dim=1)


def trial(answer: Callable[..., Any], here: Here) -> list[torch.Tensor]:
    """Return the gradients; a hook in Python lets labkit count the all-reduces."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    gradients = []
    for count in LENGTHS:
        net = _Line().to(here.device)
        ddp = DistributedDataParallel(net)
        ddp.register_comm_hook(None, allreduce_hook)
        batches = [x.to(here.device) for x in _accumulating(here.rank, count)]
        answer(ddp, _loss_of(ddp), batches)
        gradients.append(net.gradient())
    return gradients


def _loss_of(ddp: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda batch: ddp(batch).sum()


def _own(rank: int, count: int) -> torch.Tensor:
    """Return the sum of the gradients of a rank's batches, which are their inputs."""
    return torch.stack(_accumulating(rank, count)).sum(dim=0)


def _all(n: int, count: int) -> torch.Tensor:
    return torch.stack([_own(r, count) for r in range(n)]).mean(dim=0)


def expected(n: int) -> list[list[torch.Tensor]]:
    return [[_all(n, count) / count for count in LENGTHS]] * n


def _last(n: int, count: int) -> torch.Tensor:
    return torch.stack([_accumulating(r, count)[-1] for r in range(n)]).mean(dim=0)


def _all_give(wrong: Callable[[int, int], torch.Tensor]) -> Predicate:
    return simulated(lambda n: [[wrong(n, count) for count in LENGTHS]] * n)


EXERCISE = Exercise(
    id="07-4",
    title="Accumulate",
    answer="accumulate",
    setup="""
        from collections.abc import Callable

        from torch.nn.parallel import DistributedDataParallel as DDP
    """,
    trial=trial,
    expected=expected,
    formula=Formula(
        "sum([sum(rest) / count + last / count for *rest, last in batches]) / world_size",
        "batches count world_size",
        lambda n: [([_accumulating(r, k) for r in range(n)], k, n) for k in LENGTHS] * n,
    ),
    goals=(Goal("collectives", exactly=lambda n: len(LENGTHS)),),
    entries=tuple(f"the gradient of {count} batch{'es' * (count > 1)}" for count in LENGTHS),
    mistakes=(
        Mistake(
            "The gradient is right, but there is more than one all-reduce per bucket. Put both the "
            "forward and the backward of all batches but the last under net.no_sync(); in the last "
            "backward() DDP reduces each bucket, with all of its parameters, in one call.",
            missed="collectives",
        ),
        Mistake(
            "The ranks' gradients differ: no backward() is left that averages them. The last "
            "batch belongs outside no_sync().",
            when=simulated(
                lambda n: [[_own(r, count) / count for count in LENGTHS] for r in range(n)]
            ),
        ),
        Mistake(
            "The gradient is the sum over the batches: divide each loss by len(batches).",
            when=_all_give(_all),
        ),
        Mistake(
            "Every loss is divided by 3, even if there are not 3 batches: divide by len(batches).",
            when=_all_give(lambda n, count: _all(n, count) / 3),
        ),
        Mistake(
            "Only the last batch is in the gradient. Each batch needs a backward() of its own, and "
            "zero_grad() between them would throw away what the others have added.",
            when=_all_give(lambda n, count: _last(n, count) / count),
        ),
    ),
    hints=(
        "backward() adds to .grad. Outside no_sync(), DDP then averages over the ranks all that "
        ".grad holds.",
        "Put all batches but the last under net.no_sync(), and the last one after that block. "
        "Divide each loss by the number of batches.",
        "*rest, last = batches splits the list. In the with block, for each batch of rest: "
        "forward, division, backward(). Then the same for last, outside the block.",
    ),
)
