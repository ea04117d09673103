"""Exercise 07-2: weigh the loss of unequal batches so that every image counts the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, simulated

#: How many images each rank has in each call; rank 4 as many as rank 0.
IMAGES = ((1, 2, 3, 4), (5, 1, 4, 2))


def _count(call: int, rank: int) -> int:
    return IMAGES[call][rank % 4]


def _batch(call: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs of three numbers, and their labels, 0 or 1."""
    count = _count(call, rank)
    inputs = (torch.arange(3.0 * count).view(-1, 3) + rank) % 5 - 1.5
    return inputs, torch.arange(count) % 2


def _head() -> torch.Tensor:
    return torch.tensor([[0.5, -0.5], [0.25, 0.5], [-0.5, 0.0]])


def trial(answer: Callable[..., Any], here: Here) -> list[torch.Tensor]:
    """Return this rank's own gradients of a matrix that turns inputs into scores."""
    found = []
    for call in range(len(IMAGES)):
        head = _head().to(here.device).requires_grad_()
        inputs, labels = (tensor.to(here.device) for tensor in _batch(call, here.rank))
        answer(inputs @ head, labels).backward()
        assert head.grad is not None
        found.append(head.grad)
    return found


def _local(call: int, rank: int, factor: float) -> torch.Tensor:
    """Return the gradient of the loss that a rank's images add up to, times a factor."""
    head = _head().requires_grad_()
    inputs, labels = _batch(call, rank)
    (nn.functional.cross_entropy(inputs @ head, labels, reduction="sum") * factor).backward()
    assert head.grad is not None
    return head.grad


def _images(call: int, n: int) -> int:
    return sum(_count(call, r) for r in range(n))


def _all(n: int, factor: Callable[[int, int], float]) -> list[list[torch.Tensor]]:
    """Return each rank's gradients, where the sum of its losses is multiplied by
    ``factor(call, rank)``."""
    calls = range(len(IMAGES))
    return [[_local(call, r, factor(call, r)) for call in calls] for r in range(n)]


def expected(n: int) -> list[list[torch.Tensor]]:
    """Return gradients whose mean over the ranks is that of all images' mean loss."""
    return _all(n, lambda call, r: n / _images(call, n))


def _each(factor: Callable[[int, int, int], float]) -> Predicate:
    """Return the predicate of losses that are multiplied by ``factor(own, all, n)``: the numbers of
    images on the rank and on all ranks, and that of ranks."""
    return simulated(
        lambda n: _all(n, lambda call, r: factor(_count(call, r), _images(call, n), n))
    )


EXERCISE = Exercise(
    id="07-2",
    title="Weigh unequal batches",
    answer="fair_loss",
    setup="import torch.nn.functional as F",
    trial=trial,
    expected=expected,
    entries=("the gradient of the first call", "the gradient of the second call"),
    goals=(
        Goal("collectives", exactly=lambda n: 2),
        Goal("bytes sent", most=lambda n: 16),
    ),
    mistakes=(
        Mistake(
            "This is the mean over the rank's own images, so an image on a rank with few of them "
            "counts more than one on a rank with many. Divide by the number of images on all "
            "ranks.",
            when=_each(lambda own, all, n: 1 / own),
        ),
        Mistake(
            "The gradient is too small by a factor of world_size: DDP also divides by the number "
            "of ranks, so multiply by world_size.",
            when=_each(lambda own, all, n: 1 / all),
        ),
        Mistake(
            "This is the sum of the images' losses, so the gradient grows with the batch. Divide "
            "by the number of images on all ranks.",
            when=_each(lambda own, all, n: 1),
        ),
        Mistake(
            "You divide by world_size times this rank's number of images, as if all ranks had "
            "equally many. Add up the numbers over the ranks, with all_reduce.",
            when=_each(lambda own, all, n: 1 / (n * own)),
        ),
        Mistake(
            "You divide twice: F.cross_entropy has already divided by the rank's own number of "
            'images. Use its sum, reduction="sum".',
            when=_each(lambda own, all, n: n / all / own),
        ),
        Mistake(
            "The factor is upside down: the more of all images a rank has, the more its mean "
            "counts. Multiply by its own number, and divide by that of all ranks.",
            when=_each(lambda own, all, n: all / n / own**2),
        ),
    ),
    hints=(
        "DDP turns the ranks' losses into (L0 + L1 + …) / n. What must each L be, so that this "
        "is the sum over all images, divided by their number?",
        "L is the sum over this rank's images, times n, divided by the number of images on all "
        "ranks. An all_reduce of len(labels) gives that number.",
        "Put float(len(labels)) into a tensor on scores.device and all_reduce it. The loss with "
        'reduction="sum" is multiplied by one number and divided by another.',
    ),
)
