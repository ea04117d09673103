"""Where a trial of an exercise runs: what it may know about its place, on a rank or in the
notebook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def nobody_waits(seconds: float) -> None:
    """Refuse to be late, where no message is sent.

    Raises
    ------
    RuntimeError
        Always.
    """
    raise RuntimeError("nobody waits for a message of a trial that runs in the notebook")


@dataclass(frozen=True)
class Here:
    """Tell a trial where it runs: ``trial(answer, here)``.

    Parameters
    ----------
    rank, world_size
        Of the lab's group; in the notebook 0 and 1. A cell may have given ``rank`` another value:
        this is the real one.
    device
        The ``torch.device`` on which this rank computes.
    be_late
        ``be_late(seconds)``: come so much later to each message of this rank, from here on to the
        end of the trial.
    """

    rank: int
    world_size: int
    device: Any
    be_late: Callable[[float], None] = nobody_waits
