"""Give each rank a share of its own: of unequal length, in no order, and none for some rank."""

from __future__ import annotations

import torch

#: Lengths of the shares of ranks 0, 1, 2, … (again from the front beyond four), call by call.
LENGTHS = ((3, 0, 2, 5), (1, 4, 2, 3))
#: From here on float32 has no longer every whole number.
LARGE = 2**24 + 1


def length(call: int, rank: int) -> int:
    """Return how much a rank holds in a call of the answer."""
    return LENGTHS[call][rank % 4]


def numbers(call: int, rank: int) -> torch.Tensor:
    """Return a rank's floats: of both signs, and no two shares with the same mean."""
    return (torch.arange(float(length(call, rank))) + 10 * rank * rank - 7) * (1 - 2 * (call % 2))


def tokens(call: int, rank: int) -> torch.Tensor:
    """Return a rank's data with zeros in it: large whole numbers in call 0, floats in call 1."""
    k = torch.arange(length(call, rank))
    if call == 0:
        return torch.where(k == 1, 0, LARGE + 100 * rank + k)
    return torch.where(k == length(call, rank) - 1, 0.0, 0.5 * k - rank - 1)


def shares(call: int, world_size: int) -> str:
    """Return what the ranks hold in a call, as the label of its result."""
    lengths = [str(length(call, rank)) for rank in range(world_size)]
    return f"lengths {', '.join(lengths)}"
