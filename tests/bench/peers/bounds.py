"""Judge labkit beside its peers. A peer never breaks a bound: it is what labkit is held against."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from ..claim import Claim, median_ratio
from .measure import LOOKS, RANKS
from .result import Result, find

#: Two starts whose ratio is in here are too near for a clock on the wall: processor time decides.
NEAR = (0.8, 1.25)

START = Claim(
    name="peers-start",
    what=f"start to all_reduce, {RANKS} ranks: the nearest peer whose ranks stay",
    a="labkit",
    b="",
    unit="s",
    figure_unit="×",
    bound=1.0,
)
SKIP = Claim(
    name="peers-skip",
    what="a rank skips all_reduce: from the call to the words",
    a="labkit",
    b="",
    unit="s",
    figure_unit="s",
    bound=2.0,
)
PROCESSES = Claim(
    name="peers-processes",
    what=f"processes left {LOOKS[0]:g} s after the kernel was killed",
    a="labkit",
    b="",
    unit="",
    figure_unit="",
    bound=0,
)
LISTENERS = replace(
    PROCESSES,
    name="peers-listeners",
    what=f"listening sockets left {LOOKS[0]:g} s after the kernel was killed",
)
LOOPBACK = replace(
    PROCESSES,
    name="peers-loopback",
    what=f"sockets that listen off the loopback interface, {RANKS} idle ranks",
)


def judge(results: Sequence[Result]) -> list[Claim]:
    """Return labkit's claims; none if labkit was not measured."""
    labkit = find(results, "labkit")
    if labkit is None:
        return []
    others = [r for r in results if r.peer.stays and r is not labkit]
    return [*started(labkit, others), said(labkit), *left(labkit)]


def started(labkit: Result, others: Sequence[Result]) -> list[Claim]:
    """Compare labkit's start with that of the peer which comes nearest."""
    mine, rounds = labkit.starts(RANKS), len(labkit.starts(RANKS))
    rivals = [other for other in others if len(other.starts(RANKS)) == rounds > 0]
    if not mine:
        return [replace(START, error=reason(labkit, f"{RANKS} ranks"))]
    if not rivals:
        return []
    nearest = max(rivals, key=lambda rival: median_ratio(mine, rival.starts(RANKS)))
    theirs = nearest.starts(RANKS)
    ran = labkit.start_processors(RANKS), nearest.start_processors(RANKS)
    wall, processors = median_ratio(mine, theirs), median_ratio(*ran)
    near = NEAR[0] <= wall <= NEAR[1]
    sides = {"a": mine, "b": theirs, "processors of a": ran[0], "processors of b": ran[1]}
    note = f"{wall:.3g} × in seconds, {processors:.3g} × in time of processors"
    if near:
        note += "; too near in seconds: time of processors decides"
    figure = processors if near else wall
    return [replace(START, b=nearest.peer.label, figure=figure, measurements=sides, note=note)]


def said(labkit: Result) -> Claim:
    """Judge how soon labkit says that a collective was skipped."""
    seconds = [said.seconds for said in labkit.said.get("skip", [])]
    heard = [s for s in seconds if s is not None]
    if len(heard) < len(seconds) or not heard:
        return replace(SKIP, error=reason(labkit, "skip") or "nothing was said")
    return replace(
        SKIP, figure=statistics.median(heard), measurements={"a": heard}, note=labkit.words()
    )


def left(labkit: Result) -> list[Claim]:
    """Judge what labkit leaves, and who may reach it."""
    if labkit.left is None:
        error = reason(labkit, "left")
        return [replace(claim, error=error) for claim in (PROCESSES, LISTENERS, LOOPBACK)]
    after = labkit.left.after[f"{LOOKS[0]:g}"]
    figures = (
        (PROCESSES, after["processes"]),
        (LISTENERS, after["listeners"]),
        (LOOPBACK, len(labkit.off_loopback() or [])),
    )
    return [replace(c, figure=float(n), measurements={"a": [float(n)]}) for c, n in figures]


def reason(labkit: Result, step: str) -> str:
    """Return why a step has no figure."""
    return labkit.errors.get(step) or labkit.errors.get("install", "")
