"""Exercise 09-3: weight each token equally, over micro-batches and ranks that differ in length.

Inputs are small integers, so that sums over tokens are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, simulated

#: How many micro-batches a rank has in each call.
MICRO_BATCHES = (3, 1)


def _batches(call: int, rank: int) -> list[torch.Tensor]:
    """Return a rank's micro-batches, of different lengths: two integers per token."""
    lengths = [1 + (2 * rank + k) % 4 + k for k in range(MICRO_BATCHES[call])]
    return [
        torch.stack([torch.arange(n) % 3 + rank + 1.0, torch.full((n,), k + 2.0)], dim=1)
        for k, n in enumerate(lengths)
    ]


class _PerToken(nn.Module):
    """Return one loss per token: its two integers, each times a parameter, added up."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens[:, 0] * self.a + tokens[:, 1] * self.b

    def gradient(self) -> torch.Tensor:
        return torch.cat(
            [torch.zeros(1) if p.grad is None else p.grad.cpu() for p in (self.a, self.b)]
        )


def trial(answer: Callable[..., Any], here: Here) -> list[torch.Tensor]:
    """Return the gradients; a hook in Python lets labkit count the all-reduces."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    gradients = []
    for call in range(len(MICRO_BATCHES)):
        net = _PerToken().to(here.device)
        ddp = DistributedDataParallel(net)
        ddp.register_comm_hook(None, allreduce_hook)
        answer(ddp, [batch.to(here.device) for batch in _batches(call, here.rank)])
        gradients.append(net.gradient())
    return gradients


#: Weighs a micro-batch: by its own length, its rank's tokens, all tokens, those of the k-th
#: micro-batches of all ranks, the number of micro-batches, and that of ranks.
_Weight = Callable[[int, int, int, int, int, int], float]


def _own(call: int, rank: int, n: int, weight: _Weight) -> torch.Tensor:
    """Return what one rank adds up: the sums over its micro-batches, each times its weight."""
    lengths = [[len(batch) for batch in _batches(call, r)] for r in range(n)]
    mine = lengths[rank]
    together = sum(map(sum, lengths))
    return torch.stack(
        [
            batch.sum(dim=0)
            * weight(mine[k], sum(mine), together, sum(own[k] for own in lengths), len(mine), n)
            for k, batch in enumerate(_batches(call, rank))
        ]
    ).sum(dim=0)


def _averaged(n: int, weight: _Weight) -> list[list[torch.Tensor]]:
    """Return the gradients after DDP's mean over the ranks."""
    means = [
        torch.stack([_own(call, r, n, weight) for r in range(n)]).mean(dim=0)
        for call in range(len(MICRO_BATCHES))
    ]
    return [means] * n


def expected(n: int) -> list[list[torch.Tensor]]:
    """Return the gradient of the mean over all tokens, of one process."""
    return _averaged(n, lambda length, own, together, kth, count, n: n / together)


def _gives(weight: _Weight) -> Predicate:
    return simulated(lambda n: _averaged(n, weight))


EXERCISE = Exercise(
    id="09-3",
    title="Gradient accumulation with a global token count",
    answer="accumulate",
    setup="from torch.nn.parallel import DistributedDataParallel as DDP",
    trial=trial,
    expected=expected,
    goals=(
        Goal("collectives", exactly=lambda n: 2 * len(MICRO_BATCHES)),
        Goal("bytes sent", most=lambda n: 16 * len(MICRO_BATCHES)),
    ),
    entries=tuple(
        f"the gradient of {count} micro-batch{'es' * (count > 1)}" for count in MICRO_BATCHES
    ),
    mistakes=(
        Mistake(
            "The gradient is right, but there is more than one all-reduce of the gradients or of "
            "the count. Add the lengths up on the rank and reduce them once; put forward and "
            "backward of all micro-batches but the last under net.no_sync().",
            missed="collectives",
        ),
        Mistake(
            "The ranks' gradients differ: no backward() is left that averages them. The last "
            "micro-batch belongs outside no_sync().",
            when=simulated(
                lambda n: [
                    [
                        _own(call, r, n, lambda length, own, together, *_: n / together)
                        for call in range(len(MICRO_BATCHES))
                    ]
                    for r in range(n)
                ]
            ),
        ),
        Mistake(
            "This is the mean over micro-batches of their own means: a token in a short "
            "micro-batch counts more than a token in a long one. Add up the tokens' losses, and "
            "divide by the number of all tokens, of all micro-batches and ranks.",
            when=_gives(lambda length, own, together, kth, count, n: 1 / length / count),
        ),
        Mistake(
            "Each rank divides by its own number of tokens, so a token on a rank with few of them "
            "counts more. Add up the numbers over the ranks, with one all_reduce.",
            when=_gives(lambda length, own, together, kth, count, n: 1 / own),
        ),
        Mistake(
            "Each rank divides by world_size times its own number of tokens, as if all ranks had "
            "equally many. Add up the numbers over the ranks, with one all_reduce.",
            when=_gives(lambda length, own, together, kth, count, n: 1 / own / n),
        ),
        Mistake(
            "The gradient is too small by a factor of world_size: DDP also divides by the number "
            "of ranks, so multiply by world_size.",
            when=_gives(lambda length, own, together, kth, count, n: 1 / together),
        ),
        Mistake(
            "You divide by the number of micro-batches as well: the number of all tokens already "
            "counts those of each micro-batch.",
            when=_gives(lambda length, own, together, kth, count, n: n / together / count),
        ),
        Mistake(
            "Each micro-batch is divided by its own number of tokens on all ranks, so a token in "
            "a short one counts more. One number for the whole step: add up the lengths of all "
            "micro-batches before the first backward().",
            when=_gives(lambda length, own, together, kth, count, n: n / kth / count)
            | _gives(lambda length, own, together, kth, count, n: n / kth),
        ),
        Mistake(
            "This is the sum over all tokens, so the gradient grows with the batch. Divide by the "
            "number of tokens on all ranks.",
            when=_gives(lambda *_: 1.0) | _gives(lambda length, own, together, kth, count, n: n),
        ),
    ),
    hints=(
        "DDP turns the ranks' gradients into their sum / world_size. What must each rank divide "
        "its sum of losses by, so that the result is the mean over all tokens of all ranks?",
        "Add up len(batch) over the micro-batches, put the sum into a tensor on device, and "
        "all_reduce it: that is the number of tokens T. Each micro-batch then contributes "
        "net(batch).sum() * world_size / T.",
        "*rest, last = batches splits the list. Under net.no_sync(), for each batch of rest: "
        "forward, weight, backward(). Then the same for last, outside the block.",
    ),
)
