"""Measure how long the stop button takes to bring the notebook back."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from .child import Child, program
from .claim import Claim

RANKS = 4
SECONDS = 60.0  #: for the start, and for one press
#: What the ranks do, in turns: see ``programs/deadlock_labkit.py``.
WORK = ("compute", "sleep", "wait")

CLAIM = Claim(
    name="stop",
    what="the stop button, 4 ranks: from the press to a notebook that takes the next cell",
    a="labkit",
    b="",
    unit="s",
    figure_unit="s",
    bound=2.0,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Stop one lab again and again, in each way ``rounds`` times; the figure is the longest."""
    with Child(program("deadlock_labkit", RANKS), seconds=SECONDS, env=env) as lab:
        seconds = [lab.ask(WORK[turn % len(WORK)]) for turn in range(rounds * len(WORK))]
    return replace(
        CLAIM,
        figure=max(seconds),
        measurements={"a": seconds},
        note=f"median {statistics.median(seconds):.2f} s",
    )
