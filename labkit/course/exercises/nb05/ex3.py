"""Exercise 05-3: average all gradients with one all-reduce of one flat tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import simulated

#: The shape of each parameter, in the order of the network.
SHAPES = ((2, 3), (2,), (1, 2))


def _own(rank: int, n: int) -> list[torch.Tensor]:
    """Return a rank's gradients: number k of the flat tensor is k · n · 10^rank, so that the digits
    of a mean say whose gradients are in it, and its size where it belongs."""
    sizes = [torch.Size(shape).numel() for shape in SHAPES]
    flat = torch.arange(1, sum(sizes) + 1, dtype=torch.float64) * n * 10**rank
    return [piece.view(s) for piece, s in zip(flat.split(sizes), SHAPES, strict=True)]


def _net(rank: int, n: int, device: torch.device | None = None) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1, bias=False)).double().to(device)
    for p, grad in zip(net.parameters(), _own(rank, n), strict=True):
        p.grad = grad.to(p)
    return net


def _rounded(gradients: list[torch.Tensor]) -> list[Any]:
    """Return the gradients as lists; the last digits of a mean may vary."""
    return [gradient.mul(1e6).round().div(1e6).tolist() for gradient in gradients]


def trial(answer: Callable[[nn.Module], Any], here: Here) -> list[Any]:
    net = _net(here.rank, here.world_size, here.device)
    answer(net)
    return _rounded([p.grad for p in net.parameters() if p.grad is not None])


def _sums(n: int) -> list[torch.Tensor]:
    everyone = [_own(rank, n) for rank in range(n)]
    return [torch.stack(same).sum(0) for same in zip(*everyone, strict=True)]


def expected(n: int) -> list[list[Any]]:
    return [_rounded([total / n for total in _sums(n)])] * n


def _first_only(rank: int, n: int) -> list[torch.Tensor]:
    return [_sums(n)[0] / n, *_own(rank, n)[1:]]


def _all(make: Callable[[int, int], list[torch.Tensor]]) -> Any:
    """Return the predicate of the gradients that ``make(rank, n)`` gives."""
    return simulated(lambda n: [_rounded(make(rank, n)) for rank in range(n)])


EXERCISE = Exercise(
    id="05-3",
    title="Average all gradients with one call",
    answer="average_flat",
    trial=trial,
    expected=expected,
    entries=("gradient of 0.weight", "gradient of 0.bias", "gradient of 1.weight"),
    goals=(Goal("collectives", most=lambda n: 1),),
    mistakes=(
        Mistake(
            "Each rank keeps its own gradients: torch.cat makes a new tensor. Copy the averages "
            "back from it into each p.grad.",
            when=_all(_own),
        ),
        Mistake(
            "These are sums over the ranks. Divide by world_size to get the mean.",
            when=_all(lambda rank, n: _sums(n)),
        ),
        Mistake(
            "The gradients are divided, but not added up over the ranks: all_reduce the flat "
            "tensor before you copy it back.",
            when=_all(lambda rank, n: [own / n for own in _own(rank, n)]),
        ),
        Mistake(
            "They are divided by world_size twice.",
            when=_all(lambda rank, n: [total / n**2 for total in _sums(n)]),
        ),
        Mistake(
            "Only the first parameter's gradient is the mean. Do the same for every parameter.",
            when=_all(_first_only),
        ),
        Mistake(
            "The result is right, but it takes a call per parameter. Put all gradients into one "
            "tensor first, and call all_reduce once.",
            missed="collectives",
        ),
    ),
    hints=(
        "Three steps: copy all gradients into one vector, average the vector, copy it back.",
        "torch.cat of the flattened gradients makes the vector. Its split takes a list of sizes, "
        "and gives one piece per parameter.",
        "flat.split([p.numel() for p in net.parameters()]) has the pieces in the order of the "
        "parameters: p.grad.copy_(piece.view_as(p)) puts each back.",
    ),
)
