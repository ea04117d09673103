"""Exercise 16-4: average over the ranks, and compute something else while the sum is on its way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake

#: Seconds that ranks wait for one another in a trial, if an answer lets them wait in vain.
PATIENCE = 3.0
#: Seconds that the last rank is late, to see whether anybody goes on without it.
LATE = 1.0
MEANWHILE, TOO_EARLY, TOO_LATE = "during the sum", "before the sum", "after the sum"


class _Meeting:
    """Notes that the ranks of one trial leave each other, in the group's store."""

    def __init__(self, name: str, rank: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        # Every rank counts its trials, so that each has a place of its own.
        number = store.add(f"labkit 16-4 {name} {rank}", 1)
        self._store = dist.PrefixStore(f"labkit 16-4 {name} {number}", store)

    def note(self, what: str) -> None:
        self._store.add(what, 1)

    def wait(self, what: str, count: int, seconds: float = PATIENCE) -> bool:
        """Wait until so many have noted it; tell whether they have."""
        end = time.monotonic() + seconds
        while self._store.add(what, 0) < count:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True


def trial(answer: Callable[..., Any], here: Here) -> list[tuple[float, float, str] | Any]:
    """Add up twice. In the first sum every rank but the last computes until the last one is
    through; in the second the last one is late, and nobody can have the sum before it comes."""
    return [
        _overlapped(answer, here),
        _patient(answer, here),
    ]


def _overlapped(answer: Callable[..., Any], here: Here) -> Any:
    """Note when ``compute`` runs: it can see the last rank finish only if the sum has begun."""
    rank = here.rank
    meeting, others = _Meeting("order", rank), here.world_size - 1
    when = "never"
    if rank == others and not meeting.wait("computing", others):
        meeting.note("in vain")

    def compute() -> float:
        nonlocal when
        when = MEANWHILE
        if rank != others:
            meeting.note("computing")
            when = MEANWHILE if meeting.wait("through", 1) else TOO_EARLY
        return rank + 0.5

    result = answer(torch.tensor([rank + 1.0], device=here.device), compute)
    if rank == others:
        meeting.note("through")
    if result is None:
        return None
    average, computed = result
    if meeting.wait("in vain", 1, 0) and when != "never":
        when = TOO_LATE
    return float(average), computed, when


def _patient(answer: Callable[..., Any], here: Here) -> Any:
    """Return the average that the answer gives when the last rank is late."""
    rank = here.rank
    meeting, others = _Meeting("late", rank), here.world_size - 1
    if rank == others:
        meeting.wait("computing", others)
        meeting.wait("has a result", others, LATE if others else 0)

    def compute() -> float:
        meeting.note("computing")
        return 0.0

    result = answer(torch.tensor([rank + 1.0], device=here.device), compute)
    average = None if result is None else float(result[0])
    meeting.note("has a result")
    return average


def expected(world_size: int) -> list[list[Any]]:
    """Average in one process."""
    average = sum(r + 1.0 for r in range(world_size)) / world_size
    return [[(average, r + 0.5, MEANWHILE), average] for r in range(world_size)]


def _when(yours: Sequence[Any], moment: str) -> bool:
    """Tell whether some rank called ``compute`` at that moment."""
    return any(isinstance(y, list | tuple) and y[0] and y[0][2] == moment for y in yours)


EXERCISE = Exercise(
    id="16-4",
    title="Compute while the sum is on its way",
    answer="average_meanwhile",
    trial=trial,
    expected=expected,
    mistakes=(
        Mistake(
            "compute() runs after the sum: the ranks that came early wait for the last one and "
            "do nothing meanwhile. Start with async_op=True, compute, then wait.",
            when=lambda yours, expected, n: _when(yours, TOO_LATE),
            shown_by={
                "adds up first": body("""
                    dist.all_reduce(x)
                    return x / world_size, compute()
                """),
                "waits at once": body("""
                    dist.all_reduce(x, async_op=True).wait()
                    return x / world_size, compute()
                """),
            },
        ),
        Mistake(
            "compute() runs before the sum has begun, so nobody can work on it meanwhile. "
            "Start it first, with async_op=True.",
            when=lambda yours, expected, n: _when(yours, TOO_EARLY),
            shown_by={
                "computes first": edit(
                    "work = dist.all_reduce(x, async_op=True)",
                    "",
                    "work.wait()",
                    "dist.all_reduce(x)",
                )
            },
        ),
        Mistake(
            "compute is never called.",
            when=lambda yours, expected, n: _when(yours, "never"),
            shown_by={"computes nothing": edit("computed = compute()", "", ", computed", ", None")},
        ),
        Mistake(
            "That is the sum; divide it by the number of ranks, after wait().",
            when=lambda yours, expected, n: all(
                abs(y[1] - n * e[1]) < 1e-3 for y, e in zip(yours, expected, strict=True)
            ),
            shown_by={"returns the sum": edit("x / world_size", "x")},
        ),
        Mistake(
            "A rank took its average before the last one had come: x is not yours to read or "
            "change until wait() has returned.",
            when=lambda yours, expected, n: any(
                abs(y[1] - e[1]) > 1e-3 for y, e in zip(yours, expected, strict=True)
            ),
            shown_by={
                "divides before it waits": edit(
                    "work = dist.all_reduce(x, async_op=True)",
                    """
                    work = dist.all_reduce(x, async_op=True)
                    average = x / world_size
                    """,
                    "x / world_size",
                    "average",
                ),
                "never waits": edit("work = dist", "dist", "work.wait()", ""),
            },
        ),
    ),
    another=body("""
        future = dist.all_reduce(x, async_op=True).get_future()
        average = future.then(lambda done: done.value()[0] / world_size)
        computed = compute()
        return average.wait(), computed
    """),
    hints=(
        "Three steps: start the sum, call compute, and only then wait for the sum.",
        "work = dist.all_reduce(x, async_op=True) returns at once; work.wait() returns when x "
        "holds the sum.",
        "work = dist.all_reduce(x, async_op=True); computed = compute(); work.wait(); return "
        "x / world_size, computed.",
    ),
    seconds=40,
)
