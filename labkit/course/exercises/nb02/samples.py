"""Give each rank samples of its own: another number on every rank."""

from __future__ import annotations

import torch


def uneven(rank: int) -> torch.Tensor:
    """Return rank + 1 numbers: 10, 20 21, 30 31 32, …"""
    return torch.arange(rank + 1.0) + 10 * (rank + 1)
