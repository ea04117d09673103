"""Exercise 08-3: add up the gradients of bf16 parameters in fp32, over batches and over ranks.

A batch is the gradient that it gives: whole numbers that bf16 holds, but whose sums it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import When, near, simulated

#: How many batches a rank has in each call.
COUNTS = (4, 1)
#: What is looked at after a call.
LOOKS = ("the gradients of {}", "their types", "each .grad is None")
PARAMETERS = 2


class _Net(nn.Module):
    """Give a loss whose gradient is the batch, and for the bias twice its first number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))
        self.bias = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return (self.weight * batch).sum() + (self.bias * 2 * batch[0, 0]).sum()


def _batches(rank: int, count: int) -> list[torch.Tensor]:
    """Return a rank's batches: after the first, each adds less than half a step of bf16."""
    small = torch.tensor([[1.0, -1.0], [3.0, 0.5]])
    large = torch.tensor([[256.0, -512.0], [3.0, 128.0]])
    both = (large if k == 0 else small for k in range(count))
    return [(batch * (rank + 1)).bfloat16() for batch in both]


def trial(answer: Callable[[nn.Module, list[torch.Tensor]], Any], here: Here) -> list[Any]:
    """Return for each call the gradients, their types, and whether .grad is empty."""
    results: list[Any] = []
    for count in COUNTS:
        net = _Net().to(here.device)
        gradients = answer(net, [batch.to(here.device) for batch in _batches(here.rank, count)])
        types = [str(getattr(g, "dtype", type(g).__name__)) for g in gradients]
        results += [list(gradients), types, all(p.grad is None for p in net.parameters())]
    return results


Gradients = list[torch.Tensor]
#: rank, number of ranks, number of batches -> its gradients
Play = Callable[[int, int, int], Gradients]


def _of(batch: torch.Tensor) -> Gradients:
    return [batch, 2 * batch[0, :1]]


def _added(every: Iterable[Gradients]) -> Gradients:
    return [torch.stack(own).sum(dim=0) for own in zip(*every, strict=True)]


def _sum(rank: int, count: int) -> Gradients:
    """Return the sum of a rank's gradients, in fp32."""
    return _added(_of(batch.float()) for batch in _batches(rank, count))


def _sum_in_bf16(rank: int, count: int) -> Gradients:
    """Return the sum that backward() leaves in .grad."""
    first, *others = (_of(batch) for batch in _batches(rank, count))
    for own in others:
        first = [total + g for total, g in zip(first, own, strict=True)]
    return [total.float() for total in first]


def _never_cleared(rank: int, count: int) -> Gradients:
    """Return the sum of what is in .grad after each batch, if nothing clears it."""
    return _added(_sum_in_bf16(rank, k + 1) for k in range(count))


def _mean(
    total: Callable[[int, int], Gradients],
    factor: Callable[[int, int], float] = lambda n, count: 1 / (n * count),
) -> Play:
    """Return the simulation that multiplies the sum over the ranks by factor(ranks, batches)."""
    return lambda rank, n, count: [
        g * factor(n, count) for g in _added(total(r, count) for r in range(n))
    ]


def _results(simulate: Play, n: int, empty: bool = True) -> list[list[Any]]:
    types = ["torch.float32"] * PARAMETERS
    return [
        [item for count in COUNTS for item in (simulate(rank, n, count), types, empty)]
        for rank in range(n)
    ]


def expected(n: int) -> list[list[Any]]:
    return _results(_mean(_sum), n)


def _gives(simulate: Play) -> When:
    """Return the predicate of a mistake in the gradients, whatever it leaves in .grad."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        mine = _all_gradients(yours)
        wrong = _all_gradients(_results(simulate, n))
        return near(mine, wrong) and not near(mine, _all_gradients(expected))

    return when


def _all_gradients(results: list[list[Any]]) -> list[Any]:
    """Return the gradients of all ranks, call by call."""
    return [g for own in results for gradients in own[:: len(LOOKS)] for g in gradients]


def _is_rounded(yours: Any, expected: Any, n: int) -> bool:
    """Return whether all numbers are right but for the digits that bf16 lacks."""
    mine = [torch.as_tensor(g).cpu().float() for g in _all_gradients(yours)]
    right = _all_gradients(expected)
    close = [torch.allclose(g, its, 0.02) for g, its in zip(mine, right, strict=True)]
    return all(close) and not all(map(torch.equal, mine, right))


EXERCISE = Exercise(
    id="08-3",
    title="Add up in fp32",
    answer="main_gradients",
    setup="from torch import nn",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", most=lambda n: PARAMETERS * len(COUNTS)),),
    entries=tuple(
        look.format(f"{count} batch{'es' * (count > 1)}") for count in COUNTS for look in LOOKS
    ),
    mistakes=(
        Mistake(
            "The batches were added up in bf16: backward() adds to .grad in the type of "
            "the parameter. Add .grad to a float32 tensor after each batch, and clear it.",
            when=_gives(_mean(_sum_in_bf16)),
        ),
        Mistake(
            "A gradient is counted again with each later batch: .grad still holds it. Set p.grad "
            "to None after you have added it.",
            when=_gives(_mean(_never_cleared)),
        ),
        Mistake(
            "These are each rank's own gradients: they still have to be averaged over the ranks.",
            when=_gives(lambda rank, n, count: [g / count for g in _sum(rank, count)]),
        ),
        Mistake(
            "That is the sum over the ranks; the mean is wanted: divide by world_size too.",
            when=_gives(_mean(_sum, lambda n, count: 1 / count)),
        ),
        Mistake(
            "That is the sum over the batches; the mean is wanted: divide by len(batches) too.",
            when=_gives(_mean(_sum, lambda n, count: 1 / n)),
        ),
        Mistake(
            "Digits were lost in bf16, over the ranks or at the end: pass float32 tensors to "
            "all_reduce, and return float32.",
            when=_is_rounded,
        ),
        Mistake(
            "The gradients are right, but a parameter still has a .grad: set it to None, or the "
            "next backward() adds to it.",
            when=simulated(lambda n: _results(_mean(_sum), n, empty=False)),
        ),
        Mistake(
            "The result is right, but the gradients are all-reduced after every batch. Add up all "
            "batches first, then all-reduce the sums.",
            missed="collectives",
        ),
    ),
    hints=(
        "The float32 tensors have to exist before the first backward(): one per parameter, all "
        "zeros, of the parameter's shape.",
        "After each backward() add every p.grad to its sum and set p.grad to None. After the last "
        "batch all-reduce each sum and divide it.",
        "torch.zeros_like(p, dtype=torch.float32) makes a sum, and sum += p.grad adds bf16 to "
        "fp32 in fp32. Divide by world_size * len(batches).",
    ),
)
