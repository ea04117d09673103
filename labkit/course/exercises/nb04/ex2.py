"""Exercise 04-2: tell whether all ranks hold the same parameters, without collecting them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake, Wrong

DOUBLE = 8  #: bytes

CHANGED = "vector has changed"
CASES = (
    "all are equal",
    "one number differs on the last rank",
    "the last rank has another order",
    "the mean agrees",
    "the last bit differs on the last rank",
)
BYTES = 4 * 4 * DOUBLE + 4 * 4  #: of all vectors


def _vectors(rank: int, n: int) -> list[torch.Tensor]:
    """Return this rank's vectors, as ``CASES`` names them. In "the mean agrees" the vector is
    higher on the first rank and lower on the second, so that the mean over the ranks is what all
    others hold; in "the last bit differs" it is of float32, and near enough for ``allclose``."""
    base = torch.tensor([0.5, 1.5, 2.5, 4.5], dtype=torch.float64)
    last = rank == n - 1
    one = base + torch.tensor([0, 0, 1.0, 0]) * last
    order = base.flip(0) if last else base
    lopsided = base + {0: 1.0, 1: -1.0}.get(rank, 0.0)
    near = base.float()
    if last:
        near[3] = near[3].nextafter(torch.tensor(5.0))
    return [base, one, order, lopsided, near]


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> Any:
    found, changed = [], False
    for vector in _vectors(here.rank, here.world_size):
        mine = vector.clone().to(here.device)
        found.append(answer(mine))
        changed = changed or not mine.cpu().equal(vector)
    return CHANGED if changed else found


def expected(n: int) -> list[list[bool]]:
    """Compare all ranks' vectors in one process."""
    everyone = [_vectors(rank, n) for rank in range(n)]
    columns = zip(*everyone, strict=True)
    return [[all(mine.equal(first) for mine in column) for first, *column in columns]] * n


def _knows_itself(yours: Sequence[Any], expected: Sequence[Any], n: int) -> bool:
    """Tell whether each rank says only whether it is equal to rank 0."""
    first = _vectors(0, n)
    alone = [
        [mine.equal(its) for mine, its in zip(_vectors(rank, n), first, strict=True)]
        for rank in range(n)
    ]
    return list(yours) == alone


EXERCISE = Exercise(
    id="04-2",
    title="Compare without collecting",
    answer="in_step",
    trial=trial,
    expected=expected,
    entries=CASES,
    forbids=("all_gather", "all_gather_object", "gather", "gather_object"),
    goals=(
        Goal("collectives", most=lambda n: 2 * len(CASES)),
        Goal("bytes sent", most=lambda n: 2 * BYTES),
    ),
    mistakes=(
        Mistake(
            "It changes vector: broadcast overwrites what it is given, and from then on the rank "
            "has rank 0's weights. Broadcast a copy, vector.clone().",
            when=lambda yours, expected, n: any(isinstance(y, str) for y in yours),
            shown_by={
                "overwrites the vector": edit(
                    "first =", "mine =", "first,", "vector,", "first.equal", "mine.equal"
                )
            },
        ),
        Mistake(
            "Each rank knows only whether it is equal to rank 0 itself, and rank 0 always is. Let "
            "the ranks put their answers together.",
            when=_knows_itself,
            shown_by={
                "each rank for itself": body("""
                    first = vector.clone()
                    dist.broadcast(first, src=0)
                    return first.equal(vector)
                """),
            },
        ),
        Mistake(
            "It is always True: one rank that agrees is enough for it, and rank 0 agrees with "
            "itself. All must agree: take the MIN, not the MAX.",
            when=lambda yours, expected, n: all(y == [True] * len(CASES) for y in yours),
            shown_by={"one is enough": edit("ReduceOp.MIN", "ReduceOp.MAX")},
        ),
        Mistake(
            "It compares sums: the same numbers in another order have the same sum.",
            when=lambda yours, expected, n: all(y[:4] == [True, False, True, False] for y in yours),
            shown_by={
                "compares sums": body("""
                    low = vector.sum()
                    high = low.clone()
                    dist.all_reduce(low, op=dist.ReduceOp.MIN)
                    dist.all_reduce(high, op=dist.ReduceOp.MAX)
                    return low.item() == high.item()
                """),
            },
        ),
        Mistake(
            "It takes vectors for the same that differ in their last bits: allclose forgives "
            "that. Ranks that are in step hold the same bits: torch.equal.",
            when=lambda yours, expected, n: all(
                y == [True, False, False, False, True] for y in yours
            ),
            shown_by={
                "nearly equal": body("""
                    low, high = vector.clone(), vector.clone()
                    dist.all_reduce(low, op=dist.ReduceOp.MIN)
                    dist.all_reduce(high, op=dist.ReduceOp.MAX)
                    return torch.allclose(low, high)
                """),
            },
        ),
        Mistake(
            "That compares with the mean of all ranks: where one rank is higher and another lower "
            "by as much, the mean is what the others hold, and rounding lets it differ where all "
            "are equal. Compare with one rank's vector.",
            when=lambda yours, expected, n: any(y[0] is False or y[3] is True for y in yours),
            shown_by={
                "compares with the mean": body("""
                    mean = vector.clone()
                    dist.all_reduce(mean)
                    mean /= world_size
                    agree = torch.tensor(int(mean.equal(vector)), device=device)
                    dist.all_reduce(agree, op=dist.ReduceOp.MAX)
                    return agree.item() == 1
                """),
            },
        ),
        Mistake(
            "The result is right, but it takes more collectives than it has to: if all are equal "
            "to rank 0, all are equal.",
            missed="collectives",
            shown_by={
                "a broadcast from every rank": body("""
                    equal = True
                    for source in range(world_size):
                        other = vector.clone()
                        dist.broadcast(other, src=source)
                        equal = equal and other.equal(vector)
                    return equal
                """),
            },
        ),
    ),
    also_wrong={
        "collects everything": Wrong(
            body("""
                everyone = [torch.empty_like(vector) for _ in range(world_size)]
                dist.all_gather(everyone, vector)
                return all(other.equal(vector) for other in everyone)
            """),
            says="forbidden: all_gather",
        ),
    },
    another=body("""
        low, high = vector.clone(), vector.clone()
        dist.all_reduce(low, op=dist.ReduceOp.MIN)
        dist.all_reduce(high, op=dist.ReduceOp.MAX)
        return torch.equal(low, high)
    """),
    hints=(
        "If everybody is equal to rank 0, everybody is equal. So one vector has to travel, not n.",
        "Broadcast a copy of rank 0's vector and compare it with your own. Then all ranks have to "
        "learn whether all have said yes: that is an all_reduce of one number.",
        "first = vector.clone(); dist.broadcast(first, src=0); agree = torch.tensor(int(first."
        "equal(vector)), device=device); dist.all_reduce(agree, op=dist.ReduceOp.MIN); and return "
        "agree.item() == 1.",
    ),
)
