"""What exercise 09-2 tests: a model that reads digits, badly in training mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ...exercise import Here

#: What a net answers, and what is right. There are so many images that a rank's share has several
#: batches, whatever the size of a batch that the course uses; and no number of ranks divides them.
GUESSES = ((7, 2, 1, 0, 4, 1, 4, 9, 5, 9, 0, 6, 9) * 78)[:1002]
LABELS = ((7, 2, 1, 3, 4, 1, 8, 9, 6, 9, 2, 6, 0) * 78)[:1002]
#: And another, in which every rank of four has one batch.
FEW = 5


class Reads(nn.Module):
    """Take the number in an image for its digit; note how it is called.

    In training mode it reads badly, as a model with dropout does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ink = nn.Parameter(torch.ones(()))
        self.records = False

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.records = self.records or torch.is_grad_enabled()
        digits = images.flatten().long()
        return self.ink * F.one_hot(9 - digits if self.training else digits, 10)


def trial(answer: Callable[..., Any], here: Here) -> list[Any] | None:
    """Test on many images and on a few; return accuracy and number of images of both, and how
    the model was called."""
    test_set = [
        (torch.tensor([float(guess)]), label) for guess, label in zip(GUESSES, LABELS, strict=True)
    ]
    model, through = Reads().to(here.device), [0]
    ddp = nn.parallel.DistributedDataParallel(model)
    ddp.register_forward_pre_hook(lambda *_: through.__setitem__(0, 1))
    found: list[Any] = []
    for images in (test_set, test_set[2 : 2 + FEW]):
        given = answer(ddp, images)
        if given is None:
            return None
        found += list(given)
    return [*found, model.training, model.records, bool(through[0])]


#: Afterwards it trains again; no gradients were recorded; DDP's own forward was not called.
HANDLED = [True, False, False]


def right(share: Sequence[int]) -> int:
    return sum(GUESSES[i] == LABELS[i] for i in share)


def expected(world_size: int) -> list[list[Any]]:
    """Count in one process."""
    images, few = range(len(LABELS)), range(2, 2 + FEW)
    counted = [right(images) / len(images), len(images), right(few) / FEW, FEW]
    return [[*counted, *HANDLED]] * world_size
