"""Exercise 05-1: tell whether all ranks hold the same parameters, without collecting them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import every_rank, simulated, some_rank

DOUBLE = 8  #: bytes

CHANGED = "vector has changed"
CASES = (
    "all are equal, one number is 1.5e308",
    "one number differs on the last rank",
    "the last rank has another order",
    "the mean agrees",
    "the last bit differs on rank 1",
    "one number differs on a middle rank",
)
BYTES = 5 * 4 * DOUBLE + 4 * 4  #: of all vectors


def _vectors(rank: int, n: int) -> list[torch.Tensor]:
    """Return this rank's vectors, as ``CASES`` names them. In "the mean agrees" the vector is
    higher on the first rank and lower on the second, so that the mean over the ranks is what all
    others hold; in "the last bit differs" it is of float32, and near enough for ``allclose``. A
    number in the first vector is so large that no two of them can be added: a mean of equal vectors
    need not be equal to them."""
    base = torch.tensor([0.5, 1.5, 2.5, 4.5], dtype=torch.float64)
    last = rank == n - 1
    one = base + torch.tensor([0, 0, 1.0, 0]) * last
    order = base.flip(0) if last else base
    lopsided = base + {0: 1.0, 1: -1.0}.get(rank, 0.0)
    near = base.float()
    if rank == min(1, n - 1):
        near[3] = near[3].nextafter(torch.tensor(5.0))
    large = base.clone()
    large[1] = 1.5e308
    middle = base + torch.tensor([0, 2.0, 0, 0]) * (rank == n // 2)
    return [large, one, order, lopsided, near, middle]


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> Any:
    found, changed = [], False
    for vector in _vectors(here.rank, here.world_size):
        mine = vector.clone().to(here.device)
        found.append(answer(mine))
        changed = changed or not mine.cpu().equal(vector)
    return CHANGED if changed else found


def expected(n: int) -> list[list[bool]]:
    everyone = [_vectors(rank, n) for rank in range(n)]
    columns = zip(*everyone, strict=True)
    return [[all(mine.equal(first) for mine in column) for first, *column in columns]] * n


def _alone(n: int) -> list[list[bool]]:
    """Return for each rank which of its vectors are equal to rank 0's."""
    first = _vectors(0, n)
    return [
        [mine.equal(its) for mine, its in zip(_vectors(rank, n), first, strict=True)]
        for rank in range(n)
    ]


def _one_agrees(n: int) -> list[list[bool]]:
    """Return for each case whether exactly one rank's vector is equal to rank 0's."""
    return [[sum(column) == 1 for column in zip(*_alone(n), strict=True)]] * n


def _as_the_mean(n: int) -> list[list[bool]]:
    """Return for each case whether some rank's vector is equal to the mean over the ranks."""
    columns = zip(*(_vectors(rank, n) for rank in range(n)), strict=True)
    means = [(column, torch.stack(column).sum(dim=0) / n) for column in columns]
    return [[any(mine.equal(mean) for mine in column) for column, mean in means]] * n


EXERCISE = Exercise(
    id="05-1",
    title="Compare models without all_gather",
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
            "It changes vector: broadcast and all_reduce write their result into the tensor that "
            "they are given. Pass them a copy, vector.clone().",
            when=some_rank(lambda mine, its: mine == CHANGED),
        ),
        Mistake(
            "Each rank knows only whether its own vector equals rank 0's. Combine the ranks' "
            "answers, so that all ranks return the same.",
            when=simulated(_alone),
        ),
        Mistake(
            "It always returns True: one rank that agrees is enough for that, as with MAX, and "
            "rank 0 always agrees with itself. All ranks must agree: reduce with MIN.",
            when=every_rank(lambda mine, its: mine == [True] * len(CASES)),
        ),
        Mistake(
            "It adds up the ranks' answers, as all_reduce does by default: a sum of 1 means that "
            "exactly one rank agrees. All ranks must agree: reduce with MIN.",
            when=simulated(_one_agrees),
        ),
        Mistake(
            "Only two ranks are compared, the first and the last. A rank between them may be the "
            "one that differs: every rank has to compare, and all answers count.",
            when=simulated(lambda n: [_alone(n)[-1]] * n),
        ),
        Mistake(
            "It compares sums: the same numbers in a different order have the same sum.",
            when=every_rank(lambda mine, its: mine[:4] == [True, False, True, False]),
        ),
        Mistake(
            "It returns True for vectors that differ in their last bit, as torch.allclose does. "
            "Ranks in step hold the same bits: compare with torch.equal.",
            when=every_rank(lambda mine, its: mine == [True, False, False, False, True, False]),
        ),
        Mistake(
            "It is False where all vectors are equal, and True where they differ but have the "
            "right mean. Both happen in a comparison with the mean: a sum of large numbers is "
            "inf, and differences cancel. Compare with one rank's vector.",
            when=simulated(_as_the_mean),
        ),
        Mistake(
            "The result is right, but it takes more than two collectives per call. If every "
            "vector equals rank 0's, all are equal: one broadcast and one all_reduce are enough.",
            missed="collectives",
        ),
    ),
    hints=(
        "If every rank's vector equals rank 0's, all are equal. So one vector has to be sent to "
        "all ranks, not n.",
        "Broadcast rank 0's vector into a copy, and compare the copy with this rank's vector. "
        "Then every rank has to learn whether all of them agree: that is an all_reduce of one "
        "number.",
        "Before the broadcast, first = vector.clone(). The number to reduce is "
        "int(first.equal(vector)), in a tensor on device: which op leaves 1 only if every rank "
        "has 1?",
    ),
)
