"""Exercise 05-2: average gradients of batches of unequal size, each with its weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ...compare import same
from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import When


def _count(rank: int) -> int:
    return 2 * rank + 1


def _net(ranks: Sequence[int], n: int, device: torch.device | None = None) -> nn.Linear:
    """Return a network with the gradient of the mean loss over the images of some ranks.

    An image of rank r is one number, n * n * 10**r, and there are n * n images on all ranks: so
    the digits of the weight's gradient say how many of each rank are in it. The bias's gradient is
    1 over all images, and on every rank another number.
    """
    net = nn.Linear(1, 1, dtype=torch.float64, device=device)
    numbers = [float(n * n * 10**r) for r in ranks for _ in range(_count(r))]
    net(torch.tensor(numbers, dtype=torch.float64, device=device).view(-1, 1)).mean().backward()
    apart = [_apart(r, n) for r in ranks for _ in range(_count(r))]
    assert net.bias.grad is not None
    net.bias.grad += sum(apart) / len(apart)
    return net


def _apart(rank: int, n: int) -> int:
    """Return how far the bias's gradient of a rank's image is from 1: pairs of ranks cancel."""
    other = rank ^ 1
    return 0 if other >= n else _count(other) * (-1) ** rank


def _flat(net: nn.Module) -> torch.Tensor:
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    return torch.cat([grad.flatten() for grad in grads])


def trial(answer: Callable[[nn.Module, int], Any], here: Here) -> list[float]:
    net = _net([here.rank], here.world_size, here.device)
    answer(net, _count(here.rank))
    return [round(number, 6) for number in _flat(net).tolist()]  # the last digits may vary


def expected(n: int) -> list[list[float]]:
    return [_flat(_net(range(n), n)).tolist()] * n


def _weighted(mix: Callable[[list[torch.Tensor], int, int], torch.Tensor]) -> When:
    """Return the predicate of ``mix(own gradients, rank, n)`` on each rank."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        own = [_flat(_net([r], n)) for r in range(n)]
        return same(yours, [mix(own, r, n).tolist() for r in range(n)])

    return when


def _total(own: list[torch.Tensor]) -> torch.Tensor:
    """Add up the sums over each rank's images."""
    return torch.stack([_count(r) * g for r, g in enumerate(own)]).sum(0)


EXERCISE = Exercise(
    id="05-2",
    title="Weight the ranks by their number of images",
    answer="average_weighted",
    trial=trial,
    expected=expected,
    entries=("gradient of the weight", "gradient of the bias"),
    goals=(Goal("collectives", most=lambda n: 3),),
    mistakes=(
        Mistake(
            "Only the first parameter's gradient is the mean; the others are those of each rank. "
            "Do the same for every parameter of net.parameters().",
            when=_weighted(
                lambda own, rank, n: torch.cat([_flat(_net(range(n), n))[:1], own[rank][1:]])
            ),
        ),
        Mistake(
            "This is the mean of the ranks' means: a rank with one image counts as much as one "
            "with seven. Multiply by count before you add up.",
            when=_weighted(lambda own, rank, n: torch.stack(own).mean(0)),
        ),
        Mistake(
            "It adds up count times the gradient, but does not divide. How many images are there "
            "on all ranks?",
            when=_weighted(lambda own, rank, n: _total(own)),
        ),
        Mistake(
            "The weighted sum is divided by the number of ranks. Divide it by the number of "
            "images on all ranks.",
            when=_weighted(lambda own, rank, n: _total(own) / n),
        ),
        Mistake(
            "Each rank divides by its own count, so the gradients differ between ranks, and "
            "after the next step the models do too. Add up the counts over all ranks first.",
            when=_weighted(lambda own, rank, n: _total(own) / _count(rank)),
        ),
        Mistake(
            "Each rank has only weighted its own gradient: add them up over the ranks.",
            when=_weighted(lambda own, rank, n: own[rank] * _count(rank) / n**2),
        ),
        Mistake(
            "The gradients have not changed. An expression such as p.grad * … makes a new "
            "tensor: change p.grad itself, with *= and all_reduce.",
            when=_weighted(lambda own, rank, n: own[rank]),
        ),
        Mistake(
            "The result is right, but it takes more collectives than one per parameter and one "
            "more. Add up the counts once, before the loop.",
            missed="collectives",
        ),
    ),
    hints=(
        "The mean over all images is the sum over all images, divided by how many there are. A "
        "mean times its count is a sum again.",
        "First add up the counts over the ranks. Then each gradient times count / total, added up "
        "over the ranks, is the mean.",
        "Put count into a tensor on device, all_reduce it, and read the total with item(). In "
        "the loop over net.parameters(), scale p.grad in place and then all_reduce it.",
    ),
)
