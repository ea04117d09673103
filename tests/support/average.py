"""An exercise that is in no notebook, for tests of the check: average a tensor over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from labkit.course.exercise import Exercise, Goal
from labkit.wire.trial import Here


def _brought(rank: int) -> torch.Tensor:
    """Return what a rank brings, two numbers: 8 bytes."""
    return torch.tensor([rank + 1.25, 7.0 - 3.0 * rank * rank])


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> Any:
    return answer(_brought(here.rank).to(here.device))


def expected(world_size: int) -> list[torch.Tensor]:
    mean = torch.stack([_brought(rank) for rank in range(world_size)]).mean(0)
    return [mean] * world_size


#: One tensor as argument and result, and one collective: most of what a check does shows here.
AVERAGE = Exercise(
    id="99-3",
    title="Average over the ranks",
    answer="average_of_all",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: 1),),
    hints=("Add up.", "With all_reduce.", "Then divide."),
)
