"""Exercise 03-1: add up by passing whole tensors around the ring, n - 1 times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement
from typing import Any

import torch

from ...exercise import COLLECTIVES, Exercise, Goal, Here, Mistake
from ...mistakes import When, simulated, some_rank
from .ring import (
    EXCHANGE,
    FLOAT,
    ITEM,
    LATE,
    OUTSIDE,
    SENDS_FIRST,
    power_of_ten,
    too_small,
)

CHANGED = "x has changed"
ITSELF = "x itself"
#: How often each rank's x is in the sum of one rank, in a ring of n.
Counts = Callable[[int, int], Sequence[int]]


def _digits(rank: int) -> torch.Tensor:
    return power_of_ten(rank, 2)


def _table(rank: int) -> torch.Tensor:
    """Return two rows of three numbers, some of them negative, of another type."""
    return (torch.arange(6.0).view(2, 3) - 2.0) * 4.0**rank


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    n = here.world_size
    found = [_tried(answer, _digits(here.rank).to(here.device), n)]
    if here.rank == 0:
        here.be_late(LATE)  # what arrives in a tensor that is still to be sent is sent instead
    found.append(_tried(answer, _table(here.rank).to(here.device), n))
    inside = here.rank < n - 1
    return [*found, _tried(answer, _digits(here.rank).to(here.device), n - 1) if inside else None]


def _tried(answer: Callable[..., Any], x: torch.Tensor, n: int) -> Any:
    before = x.clone()
    total = answer(x, n)
    if not x.equal(before):
        return CHANGED
    return ITSELF if total is x else total


def _would(counts: Counts) -> Callable[[int], list[list[Any]]]:
    """Return what ranks get that have each rank's x in their sum so often."""

    def total(kind: Callable[[int], torch.Tensor], rank: int, n: int) -> torch.Tensor | None:
        if rank >= n:
            return None
        return torch.stack([c * kind(r) for r, c in enumerate(counts(rank, n))]).sum(0)

    return lambda n: [
        [total(_digits, r, n), total(_table, r, n), total(_digits, r, n - 1)] for r in range(n)
    ]


expected = _would(lambda rank, n: [1] * n)


def labels(n: int) -> list[str]:
    return [f"naive_ring(x, {n})", f"naive_ring(y, {n}), y 2 × 3", f"naive_ring(x, {n - 1})"]


def _plus(rank: int, n: int, more: dict[int, int], base: int = 0) -> list[int]:
    counts = [base] * n
    for place, count in more.items():
        counts[(rank + place) % n] += count
    return counts


def _passes_on_totals(rank: int, n: int) -> list[int]:
    totals = [_plus(r, n, {0: 1}) for r in range(n)]
    for _ in range(n - 1):
        totals = [[a + b for a, b in zip(totals[r], totals[r - 1], strict=True)] for r in range(n)]
    return totals[rank]


def _gives(counts: Counts) -> When:
    return simulated(_would(counts))


def _some_twice(yours: Sequence[Any], expected: Any, n: int) -> bool:
    """Return whether some rank added up n numbers of ranks, but not one of each: at once, or when
    rank 0 was late."""

    def odd(total: Any) -> bool:
        digits = [int(digit) for digit in str(int(total.view(-1)[0]))]
        return sum(digits) == n and set(digits) != {1}

    def late(total: Any) -> bool:
        factor = float(total.view(-1)[0] / _table(0).view(-1)[0])
        chosen = combinations_with_replacement(range(n), n)
        return factor in {sum(4.0**r for r in ranks) for ranks in chosen if len({*ranks}) < n}

    if any(odd(y[0]) for y in yours):
        return True
    first_right = all(y[0].equal(e[0]) for y, e in zip(yours, expected, strict=True))
    return first_right and any(late(y[1]) for y in yours)


EXERCISE = Exercise(
    id="03-1",
    title="The naive ring",
    answer="naive_ring",
    setup=EXCHANGE,
    trial=trial,
    expected=expected,
    entries=labels,
    forbids=COLLECTIVES,
    goals=(
        Goal("messages sent", most=lambda n: 2 * (n - 1) + (n - 2)),
        Goal("bytes sent", most=lambda n: (n - 1) * (2 * ITEM + 6 * FLOAT) + (n - 2) * 2 * ITEM),
    ),
    mistakes=(
        SENDS_FIRST,
        OUTSIDE,
        too_small("it is shorter than x"),
        Mistake(
            "naive_ring returns None: return the sum.",
            when=some_rank(lambda mine, its: mine[0] is None),
        ),
        Mistake(
            "It changes x, which belongs to the caller. Something was added to x itself, or "
            "received into it, as happens when x travels first and then becomes the tensor to "
            "receive into: add into a copy, x.clone(), and receive into a new tensor.",
            when=some_rank(lambda mine, its: CHANGED in mine[:2]),
        ),
        Mistake(
            "The result is your own x: what arrives has to be added to the sum that is returned.",
            when=_gives(lambda r, n: _plus(r, n, {0: 1})),
        ),
        Mistake(
            "Only one neighbour's number is in the sum. A step moves a tensor by one place, and "
            "the farthest has n - 1 places to go: repeat the step.",
            when=_gives(lambda r, n: _plus(r, n, {0: 1, -1: 1} if n > 1 else {0: 1})),
        ),
        Mistake(
            "You send your own x in every step, so your neighbour adds it n - 1 times. Send on "
            "what arrived last.",
            when=_gives(lambda r, n: _plus(r, n, {0: 1, -1: n - 1})),
        ),
        Mistake(
            "You pass on the sum so far *and* add what arrives to it, so ranks are counted several "
            "times (look at the digits). Send on what arrived last; or let the sum travel, and "
            "replace yours by x + incoming.",
            when=_gives(_passes_on_totals),
        ),
        Mistake(
            "One step too many: after n - 1 steps you have every rank's number, and the n-th "
            "brings back your own.",
            when=_gives(lambda r, n: _plus(r, n, {0: 1}, base=1)),
        ),
        Mistake(
            "One step too few: your right neighbour's number needs n - 1 steps to reach you.",
            when=_gives(lambda r, n: _plus(r, n, {1: -1} if n > 1 else {}, base=1)),
        ),
        Mistake(
            "Your own number is missing: the sum begins with x, not with zero.",
            when=_gives(lambda r, n: _plus(r, n, {0: -1}, base=1)),
        ),
        Mistake(
            "You add n - 1 tensors, but one rank's twice and another rank's not at all. A message "
            "can arrive before the next one is sent: send from one tensor and receive into "
            "another.",
            when=_some_twice,
        ),
    ),
    hints=(
        "Keep two things apart: the sum so far, which stays here, and the tensor that travels.",
        "In each step send the travelling tensor, receive another one into a fresh tensor, and add "
        "that to the sum. What travels in the next step?",
        "Before the loop: total is a copy of x, and x is what travels first. In the loop: exchange "
        "with a new tensor, add it to total, and let it be what travels next.",
    ),
)
