"""Measure what each further rank adds to the start."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from .child import program, time_to_answer
from .claim import Claim, alternate

FEW, MANY = 4, 16
SECONDS = 90.0  #: for one start

CLAIM = Claim(
    name="scale",
    what="start to all_reduce: what each further rank adds",
    a=f"{MANY} ranks",
    b=f"{FEW} ranks",
    unit="s",
    figure_unit="s/rank",
    bound=0.25,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Start both sizes ``rounds`` times; the figure is the median difference per rank added."""
    times = alternate(
        rounds,
        {
            side: lambda n=ranks: time_to_answer(
                program("start_labkit", n), seconds=SECONDS, env=env
            )
            for side, ranks in (("a", MANY), ("b", FEW))
        },
    )
    added = [many - few for many, few in zip(times["a"], times["b"], strict=True)]
    figure = statistics.median(added) / (MANY - FEW)
    return replace(CLAIM, figure=figure, measurements=times)
