"""Measure a start beside a zygote: from ``labkit.start`` to a finished all_reduce, four ranks."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from .child import Child, program
from .claim import Claim

RANKS = 4
SECONDS = 60.0  #: for the zygote to have imported all, and for one start

CLAIM = Claim(
    name="warm",
    what="the next start, 4 ranks",
    a="labkit",
    b="",
    unit="s",
    figure_unit="s",
    bound=0.5,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Start and stop ``rounds`` labs beside one zygote, as the notebooks of a JupyterLab do."""
    with Child(program("warm_labkit", RANKS), seconds=SECONDS, env=env) as lab:
        times = [float(lab.ask("start")) for _ in range(rounds)]
    return replace(CLAIM, figure=statistics.median(times), measurements={"a": times})
