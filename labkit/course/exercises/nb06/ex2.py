"""Exercise 06-3: weigh the loss of unequal batches so that every image counts the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from ...mistakes import would_give


def _batch(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rank + 1 inputs of three numbers, and their labels, 0 or 1."""
    inputs = (torch.arange(3.0 * (rank + 1)).view(-1, 3) + rank) % 5 - 1.5
    return inputs, torch.arange(rank + 1) % 2


def _head() -> torch.Tensor:
    return torch.tensor([[0.5, -0.5], [0.25, 0.5], [-0.5, 0.0]])


def trial(answer: Callable[..., Any], here: Here) -> torch.Tensor:
    """Return this rank's own gradient of a matrix that turns inputs into scores."""
    head = _head().to(here.device).requires_grad_()
    inputs, labels = (tensor.to(here.device) for tensor in _batch(here.rank))
    answer(inputs @ head, labels).backward()
    assert head.grad is not None
    return head.grad


def _local(rank: int, factor: float) -> torch.Tensor:
    """Return the gradient of the loss that a rank's images add up to, times a factor."""
    head = _head().requires_grad_()
    inputs, labels = _batch(rank)
    (nn.functional.cross_entropy(inputs @ head, labels, reduction="sum") * factor).backward()
    assert head.grad is not None
    return head.grad


def _images(n: int) -> int:
    return sum(r + 1 for r in range(n))


def expected(n: int) -> list[torch.Tensor]:
    """Return gradients whose mean over the ranks is that of all images' mean loss."""
    return [_local(r, n / _images(n)) for r in range(n)]


EXERCISE = Exercise(
    id="06-3",
    title="Weigh unequal batches",
    answer="fair_loss",
    setup="import torch.nn.functional as F",
    trial=trial,
    expected=expected,
    goals=(
        Goal("collectives", exactly=lambda n: 1),
        Goal("bytes sent", most=lambda n: 8),
    ),
    mistakes=(
        Mistake(
            "This is the mean over the rank's own images, so an image on a rank with few of them "
            "counts more than one on a rank with many. Divide by the number of images on all "
            "ranks.",
            when=would_give(lambda n: [_local(r, 1 / (r + 1)) for r in range(n)]),
            shown_by={
                "the plain mean": body("return F.cross_entropy(scores, labels)"),
                "the loss is reduced": body("""
                    loss = F.cross_entropy(scores, labels)
                    everywhere = loss.detach().clone()
                    dist.all_reduce(everywhere)
                    return loss
                """),
            },
        ),
        Mistake(
            "The gradient is too small by a factor of world_size: DDP also divides by the number "
            "of ranks, so multiply by world_size.",
            when=would_give(lambda n: [_local(r, 1 / _images(n)) for r in range(n)]),
            shown_by={"not times world_size": edit("* world_size /", "/")},
        ),
        Mistake(
            "It is the sum of the images' losses, so the gradient grows with the batch. Divide by "
            "the number of images on all ranks.",
            when=would_give(lambda n: [_local(r, 1) for r in range(n)]),
            shown_by={"the sum": body('return F.cross_entropy(scores, labels, reduction="sum")')},
        ),
        Mistake(
            "You divide by world_size times this rank's number of images, as if all ranks had "
            "equally many. Add up the numbers over the ranks, with all_reduce.",
            when=would_give(lambda n: [_local(r, 1 / (n * (r + 1))) for r in range(n)]),
            shown_by={
                "as if all had equally many": body("""
                    return F.cross_entropy(scores, labels, reduction="sum") / (
                        world_size * len(labels)
                    )
                """),
            },
        ),
    ),
    also_wrong={
        "gathers objects": Wrong(
            body("""
                counts = [None] * world_size
                dist.all_gather_object(counts, len(labels))
                return F.cross_entropy(scores, labels, reduction="sum") * world_size / sum(counts)
            """),
            says="goal: collectives",
        ),
    },
    another=body("""
        images = torch.tensor([len(labels)], device=scores.device)
        dist.all_reduce(images)
        share = len(labels) / images.item()
        return F.cross_entropy(scores, labels) * share * world_size
    """),
    hints=(
        "DDP turns the ranks' losses into (L0 + L1 + …) / n. What must each L be, so that this "
        "is the sum over all images, divided by their number?",
        "L is the sum over this rank's images, times n, divided by the number of images on all "
        "ranks. An all_reduce of len(labels) gives that number.",
        "Put float(len(labels)) into a tensor on scores.device and all_reduce it. The loss with "
        'reduction="sum" is multiplied by one number and divided by another.',
    ),
)
