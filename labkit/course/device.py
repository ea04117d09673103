"""Tell a trial where its tensors belong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def here() -> torch.device:
    """Return this rank's device, as a cell finds it in ``device``. Only on a rank."""
    from ..rank import memory

    return memory.device
