"""Exercise 20-3: all-reduce on two levels, so that little crosses the cable between hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ...exercise import Exercise, Goal, Here, Mistake
from ...mistakes import Predicate, every_rank, near, simulated, some_rank
from .cable import counted

#: Shapes and types; those of the first layout, and the one of the others.
CASES = (
    ((8,), torch.int64),
    ((7,), torch.float32),
    ((3, 5), torch.float64),
    ((1,), torch.int32),
)
LATER = 1
#: Elements of the first x that does not divide by two.
UNEVEN = 7
#: What is added to integers, and what floats of 64 bits are multiplied by, so that float32 has
#: too few digits for the former, and no room for the latter.
DIGITS, ROOM = {torch.int32: 2**24 + 1}, {torch.float64: 2.0**200}
CALLS_ALLOWED = 3


def layouts(n: int) -> list[int]:
    """Return the numbers of ranks per host that are tried."""
    return list(dict.fromkeys(per for per in (2, n, 1) if n % per == 0))


def tried(n: int) -> list[tuple[int, int]]:
    """Return ranks per host and the number of the case of each call."""
    first, *others = layouts(n)
    return [(first, case) for case in range(len(CASES))] + [(per, LATER) for per in others]


def brought(case: int, rank: int) -> torch.Tensor:
    """Return what a rank brings: a digit of its own in each element."""
    shape, dtype = CASES[case]
    x = torch.arange(1, torch.Size(shape).numel() + 1, dtype=torch.float64) % 9
    x = (x * 10**rank + rank + DIGITS.get(dtype, 0)) * ROOM.get(dtype, 1)
    return x.to(dtype).view(shape)


def groups_of(here: Here, per: int) -> tuple[Any, Any]:
    """Make the groups of a layout; return those of this rank, inside and across."""
    n = here.world_size
    inside = [dist.new_group(range(first, first + per)) for first in range(0, n, per)]
    across = [dist.new_group(range(place, n, per)) for place in range(per)]
    return inside[here.rank // per], across[here.rank % per]


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Call it; note x afterwards, and what went through `across` beyond the limit, or elsewhere."""
    groups = {per: groups_of(here, per) for per in layouts(here.world_size)}
    results: list[Any] = []
    for per, case in tried(here.world_size):
        inside, across = groups[per]
        x = brought(case, here.rank).to(here.device)
        limit = -(-x.numel() // per)
        with counted() as most:
            answer(x, inside, across)
        passed = most.pop(across.group_name, 0)
        most.pop(inside.group_name, None)
        results += [x, max(0, passed - limit), max(most.values(), default=0)]
    return results


def labels(n: int) -> list[str]:
    names = []
    for per, case in tried(n):
        shape, dtype = CASES[case]
        name = f"{n // per} × {per} ranks, {str(dtype).removeprefix('torch.')} {list(shape)}"
        names += [f"x, {name}", "elements beyond the limit through across", "through other groups"]
    return names


def _each(sum_of: Callable[[int, int, int, int], torch.Tensor]) -> Callable[[int], list[list[Any]]]:
    """Return what every rank gives if ``sum_of(case, rank, n, per)`` is x afterwards."""
    return lambda n: [
        [item for per, case in tried(n) for item in (sum_of(case, rank, n, per), 0, 0)]
        for rank in range(n)
    ]


def _added(case: int, ranks: range) -> torch.Tensor:
    total = brought(case, ranks[0])
    for rank in ranks[1:]:
        total = total + brought(case, rank)
    return total


def _host(rank: int, per: int) -> range:
    return range(rank - rank % per, rank - rank % per + per)


expected = _each(lambda case, rank, n, per: _added(case, range(n)))


def _tensors(own: list[Any]) -> list[Any]:
    return own[::3]


def _are(simulate: Callable[[int, int, int, int], torch.Tensor]) -> Predicate:
    """Return the predicate of a mistake by the tensors alone, whatever else was counted."""
    return simulated(lambda n: [_tensors(own) for own in _each(simulate)(n)], _tensors)


def _beyond(place: int) -> Predicate:
    """Return the predicate of a right result with too many elements in one of the counts."""
    right = every_rank(lambda mine, its: near(_tensors(mine), _tensors(its)))
    return right & some_rank(lambda mine, its: any(mine[place::3]))


def _as_in_float32(mine: list[Any], its: list[Any]) -> bool:
    """Return whether sums are right as far as float32 goes."""
    return all(
        near(x.double(), y.double()) or bool(x.isinf().any())
        for x, y in zip(_tensors(mine), _tensors(its), strict=True)
    )


EXERCISE = Exercise(
    id="20-3",
    title="Reduce on two levels",
    answer="two_levels",
    trial=trial,
    expected=expected,
    entries=labels,
    goals=(Goal("collectives", most=lambda n: CALLS_ALLOWED * len(tried(n))),),
    mistakes=(
        Mistake(
            "x is as it was: add up in place. If you work on a padded copy, copy the sum back "
            "into x at the end.",
            when=_are(lambda case, rank, n, per: brought(case, rank)),
        ),
        Mistake(
            "That is the sum of each host by itself. The hosts have to add up too, through "
            "`across`.",
            when=_are(lambda case, rank, n, per: _added(case, _host(rank, per))),
        ),
        Mistake(
            "That is the sum over `across` only, one rank of each host. Add up inside the host "
            "first.",
            when=_are(lambda case, rank, n, per: _added(case, range(rank % per, n, per))),
        ),
        Mistake(
            "The sum is too large by the number of ranks per host: after the first step every "
            "rank of a host has the host's sum, so to add up inside once more counts it again. "
            "Give each rank one part, and gather the parts at the end.",
            when=_are(lambda case, rank, n, per: per * _added(case, range(n))),
        ),
        Mistake(
            "The sum has lost digits: the padded copy is float32, and x has another type. Give the "
            "copy the type of x: x.new_zeros(…), or dtype=x.dtype.",
            when=every_rank(_as_in_float32)
            & some_rank(lambda mine, its: not near(_tensors(mine), _tensors(its))),
        ),
        Mistake(
            "The sum is right, but it is not made on two levels: a collective ran on neither "
            "`inside` nor `across`. Without group= it runs on all ranks.",
            when=_beyond(2),
        ),
        Mistake(
            "The sum is right, but padded more than it has to be, so that a rank puts more than "
            "its part through `across`: pad to the next multiple of the ranks per host, "
            "dist.get_world_size(inside), which may be 1.",
            when=_beyond(1) & every_rank(lambda mine, its: max(mine[1::3]) <= 1),
        ),
        Mistake(
            "The sum is right, but a rank puts more than its part through `across`. Let every rank "
            "of a host keep one part of the host's sum (reduce-scatter) and take only that to the "
            "other hosts.",
            when=_beyond(1),
        ),
        Mistake(
            "The number of elements does not always divide by the ranks per host, and "
            "reduce_scatter_tensor needs equal parts: pad a copy with zeros.",
            raises=rf"outputShape\[0\] \* worldSize == inputShape\[0\] \(\d+ vs\. {UNEVEN}\)",
            stuck=r"reduce_scatter",
        ),
        Mistake(
            "The sizes of a part and of the padded copy do not fit: a part is the copy's length "
            "divided by dist.get_world_size(inside), and both calls with these two run on "
            "`inside`.",
            raises=r"outputShape\[0\] \* worldSize == inputShape|must be equal to world_size"
            r"|size equal to world_size times|invalid tensor size at index",
        ),
        Mistake(
            "The result is right, but it takes more than three collectives per call: "
            "reduce-scatter inside, all-reduce across, all-gather inside.",
            missed="collectives",
        ),
    ),
    hints=(
        "Three phases: each rank of a host gets one part of the host's sum; the parts are added "
        "up between hosts; the parts are collected.",
        "Reduce-scatter on `inside` needs a tensor whose length is a multiple of the ranks per "
        "host: copy x into one that is long enough, filled with zeros.",
        "Reduce-scatter inside, all-reduce the part across, all-gather inside, into the padded "
        "copy; then copy as many elements back as x has.",
    ),
    seconds=30,
)
