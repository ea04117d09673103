"""Exercise 24-4: average over the ranks, and compute something else while the sum is on its way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ....base import times
from ...compare import number
from ...exercise import Exercise, Here, Mistake
from ...mistakes import near, simulated, some_rank

#: Seconds that the last rank is late, to see whether anybody goes on without it.
LATE = 1.0
#: What stands in the place of the second result if there is only one.
NO_PAIR = "no second value"
MEANWHILE, TOO_EARLY, TOO_LATE = "during the sum", "before the sum", "after the sum"


class _Meeting:
    """Notes that the ranks of one trial leave each other, in the group's store."""

    def __init__(self, name: str, rank: int) -> None:
        store = dist.distributed_c10d._get_default_store()
        # Every rank counts its trials, so that each has a place of its own.
        number = store.add(f"labkit 24-4 {name} {rank}", 1)
        self._store = dist.PrefixStore(f"labkit 24-4 {name} {number}", store)

    def note(self, what: str) -> None:
        self._store.add(what, 1)

    def wait(self, what: str, count: int, seconds: float | None = None) -> bool:
        """Wait until so many have noted it; return whether they have."""
        end = time.monotonic() + (times.TRIAL_RANKS.seconds() if seconds is None else seconds)
        while self._store.add(what, 0) < count:
            if time.monotonic() > end:
                return False
            time.sleep(times.TRIAL_RANKS_LOOK)
        return True


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Add up twice. In the first sum every rank but the last computes until the last one is
    through; in the second the last one is late, and no rank can have the sum before it comes."""
    return [*_overlapped(answer, here), _patient(answer, here)]


def _numbers(call: int, rank: int) -> float:
    """Return what a rank brings to a sum."""
    return rank + 1.0 if call == 0 else -2.0 * rank - 1


def _pair(result: Any) -> tuple[Any, Any]:
    """Return the two results as plain values: those of other types by the names of these."""
    if not (isinstance(result, tuple | list) and len(result) == 2):
        return (None if result is None else f"one {type(result).__name__}", NO_PAIR)
    first, second = map(number, result)
    return (_plain(first), _plain(second))


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"


def _overlapped(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Record when ``compute`` runs: it can see the last rank finish only if the sum has begun."""
    rank = here.rank
    meeting, others = _Meeting("order", rank), here.world_size - 1
    when, calls = "never", 0
    if rank == others and not meeting.wait("computing", others):
        meeting.note("in vain")

    def compute() -> float:
        nonlocal when, calls
        calls += 1
        when = MEANWHILE
        if rank != others:
            meeting.note("computing")
            when = MEANWHILE if meeting.wait("through", 1) else TOO_EARLY
        return rank + 0.5

    result = answer(torch.tensor([_numbers(0, rank)], device=here.device), compute)
    if rank == others:
        meeting.note("through")
    if result is not None and meeting.wait("in vain", 1, 0) and when != "never":
        when = TOO_LATE
    return [*_pair(result), when, calls]


def _patient(answer: Callable[..., Any], here: Here) -> Any:
    """Return the average that the answer gives when the last rank is late."""
    rank = here.rank
    meeting, others = _Meeting("late", rank), here.world_size - 1
    if rank == others:
        meeting.wait("computing", others)
        meeting.wait("has a result", others, LATE if others else 0)

    def compute() -> float:
        meeting.note("computing")
        return 0.25

    average, _ = _pair(answer(torch.tensor([_numbers(1, rank)], device=here.device), compute))
    meeting.note("has a result")
    return average


def expected(world_size: int, factor: int = 1) -> list[list[Any]]:
    """Average in one process."""
    first, second = (
        factor * sum(_numbers(call, rank) for rank in range(world_size)) / world_size
        for call in range(2)
    )
    return [[first, rank + 0.5, MEANWHILE, 1, second] for rank in range(world_size)]


def _early(yours: Any, expected: Any, n: int) -> bool:
    """Return whether all is right but averages."""
    rest = [[y[1:4] for y in values] for values in (yours, expected)]
    numbers = all(isinstance(y[k], int | float) for y in yours for k in (0, 4))
    if not (n > 1 and numbers and near(*rest)) or near(yours, expected):
        return False
    # A wrong formula shows in the same way in both sums, or gives the same number in both.
    factors = {round(y[k] / e[k], 4) for y, e in zip(yours, expected, strict=True) for k in (0, 4)}
    return len(factors) > 1 and any(y[0] != y[4] for y in yours)


EXERCISE = Exercise(
    id="24-4",
    title="Compute while the sum is on its way",
    answer="average_meanwhile",
    trial=trial,
    expected=expected,
    entries=(
        "average over the ranks",
        "what compute returned",
        "when compute ran",
        "how often compute ran",
        "average, the last rank late",
    ),
    mistakes=(
        Mistake(
            "compute() runs after the sum: the ranks that come early do nothing while they wait "
            "for the last one. Start the sum with async_op=True, compute, then wait.",
            when=some_rank(lambda mine, its: mine[2] == TOO_LATE),
        ),
        Mistake(
            "compute() runs before the sum has begun, so the two cannot overlap. Start the sum "
            "first, with async_op=True.",
            when=some_rank(lambda mine, its: mine[2] == TOO_EARLY),
        ),
        Mistake(
            "compute is never called.",
            when=lambda yours, expected, n: all(y[3] == 0 and y[0] is not None for y in yours),
        ),
        Mistake(
            "It returns one value; a pair is expected: the average, and what compute returned.",
            when=lambda yours, expected, n: all(y[1] == NO_PAIR and y[0] for y in yours),
        ),
        Mistake(
            "The two results are swapped: the average comes first, then what compute returned.",
            when=simulated(lambda n: [[b, a, *rest, 0.25] for a, b, *rest, _ in expected(n)]),
        ),
        Mistake(
            "The first of the pair is the Work object, which holds no numbers. The sum is in x, "
            "after wait().",
            when=lambda yours, expected, n: all(str(y[0]).endswith("Work") for y in yours),
        ),
        Mistake(
            "That is the sum; divide it by the number of ranks, after wait().",
            when=simulated(lambda n: expected(n, factor=n)),
        ),
        Mistake(
            "A rank took its average before the last one had come: neither read nor change x until "
            "wait() has returned.",
            when=_early,
        ),
    ),
    hints=(
        "Three steps: start the sum, call compute, and only then wait for the sum.",
        "With async_op=True the call returns a Work at once; keep it, to wait on it later.",
        "x holds the sum only after wait(), so divide after that line.",
    ),
    seconds=40,
)
