"""Measure ``lab.restart()``: four fresh ranks, in a process group again."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from .child import Child, program
from .claim import Claim

RANKS = 4
SECONDS = 60.0  #: for the start, and for one restart

CLAIM = Claim(
    name="restart",
    what="lab.restart(), 4 ranks",
    a="labkit",
    b="",
    unit="s",
    figure_unit="s",
    bound=1.0,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Restart one lab ``rounds`` times; each time the fresh ranks prove that they work."""
    with Child(program("restart_labkit", RANKS), seconds=SECONDS, env=env) as lab:
        times = [float(lab.ask("restart")) for _ in range(rounds)]
    return replace(CLAIM, figure=statistics.median(times), measurements={"a": times})
