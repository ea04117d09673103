"""Measure how long a lab takes from a declared deadlock to the next finished ``all_reduce``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from .claim import Claim
from .deadlock import break_in_turns

CLAIM = Claim(
    name="recovery",
    what="after a deadlock, 4 ranks: from declared to the next all_reduce done",
    a="labkit",
    b="",
    unit="s",
    figure_unit="s",
    bound=0.2,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Break one lab again and again; the figure is the median time until it works again."""
    _, usable = break_in_turns(rounds, env)
    return replace(
        CLAIM,
        figure=statistics.median(usable),
        measurements={"a": usable},
        note=f"longest recovery {max(usable):.2f} s",
    )
