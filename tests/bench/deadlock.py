"""Measure how long a deadlock takes: to be declared, and from there to a lab that works."""

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
    bound=1.0,
)
#: Seconds from declared to a lab whose next all_reduce is done.
RECOVERY_BOUND = 1.0


def measure(rounds: int, env: Mapping[str, str]) -> Claim:
    """Break one lab again and again. A deadlock is certain when the last rank has come to the
    call in which it waits, or has ended its cell."""
    declared, usable = [], []
    with Child(program("deadlock_labkit", RANKS), seconds=SECONDS, env=env) as lab:
        for turn in range(rounds * len(FAULTS)):
            to_declare, to_use = lab.ask(FAULTS[turn % len(FAULTS)])
            declared.append(to_declare)
            usable.append(to_use)
    recovery = statistics.median(usable)
    return replace(
        CLAIM,
        figure=statistics.median(declared),
        measurements={"a": declared, "recovery": usable},
        note=f"from declared to the next all_reduce done: {recovery:.2f} s (median), longest "
        f"{max(usable):.2f} s; longest to declare {max(declared):.2f} s",
        error="" if recovery <= RECOVERY_BOUND else f"recovery took {recovery:.2f} s",
    )
