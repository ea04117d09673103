"""Measure how long a deadlock takes to be declared, once it is certain."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from .child import Child, program
from .claim import Claim

RANKS = 4
SECONDS = 60.0  #: for the start, and for one deadlock
#: What to break, in turns: see ``programs/deadlock_labkit.py``.
FAULTS = ("skip", "send", "order")

CLAIM = Claim(
    name="deadlock",
    what="a deadlock, 4 ranks: from certain to declared",
    a="labkit",
    b="",
    unit="s",
    figure_unit="s",
    bound=0.6,
)


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Break one lab again and again; the figure is the median time to declare."""
    declared, _ = break_in_turns(rounds, env)
    return replace(
        CLAIM,
        figure=statistics.median(declared),
        measurements={"a": declared},
        note=f"longest to declare {max(declared):.2f} s",
    )


def break_in_turns(rounds: int, env: Mapping[str, str]) -> tuple[list[float], list[float]]:
    """Break one lab again and again, in each way ``rounds`` times.

    A deadlock is certain when the last rank has come to the call in which it waits, or has ended
    its cell.

    Returns
    -------
    declared, usable
        Seconds of each deadlock: from certain to declared, and from there to a finished
        ``all_reduce`` in the next cell.
    """
    declared, usable = [], []
    with Child(program("deadlock_labkit", RANKS), seconds=SECONDS, env=env) as lab:
        for turn in range(rounds * len(FAULTS)):
            to_declare, to_use = lab.ask(FAULTS[turn % len(FAULTS)])
            declared.append(to_declare)
            usable.append(to_use)
    return declared, usable
