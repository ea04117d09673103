"""Exercise 03-4: put both halves together to an all-reduce that sends 2(n - 1)/n of the tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ...compare import same
from ...exercise import COLLECTIVES, NOT_TRIED, Exercise, Goal, Here, Mistake
from ...mistakes import some_rank
from .ring import (
    ENDED,
    EXCHANGE,
    FLOAT,
    ITEM,
    SENDS_FIRST,
    UNEQUAL,
    first_is,
    play_ring,
    too_small,
)

#: What 03-2 and 03-3 have made.
HALVES = """
def reduce_scatter_step(chunks, step, buffer):
    n = len(chunks)
    mine = chunks[(rank - step - 2) % n]
    incoming = buffer[: len(mine)]
    exchange(chunks[(rank - step - 1) % n], incoming, n)
    mine += incoming


def all_gather_step(chunks, step):
    n = len(chunks)
    exchange(chunks[(rank - step) % n], chunks[(rank - step - 1) % n], n)
"""
#: Rows and columns of the matrix that is added up: fewer rows than ranks, and six elements, of
#: which torch.chunk makes three pieces for four ranks.
ROWS, COLUMNS = 2, 3
SIZE = ROWS * COLUMNS


def _matrix(rank: int) -> torch.Tensor:
    """Return a matrix of 1 to 6 times 10**rank, so that a chunk in the wrong place is noticed."""
    return 10**rank * torch.arange(1, SIZE + 1).view(ROWS, COLUMNS)


def _row(rank: int, n: int) -> torch.Tensor:
    return (torch.arange(n + 1.0) - 2.0) * 4.0**rank


def _single(rank: int) -> torch.Tensor:
    return torch.tensor(10**rank)


def _total(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(tensors)).sum(dim=0)


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Add up a matrix; if that was right, a row of floats, and one number on fewer ranks."""
    n, m = here.world_size, here.world_size - 1
    x = _matrix(here.rank).to(here.device)
    answer(x, n)
    if not x.cpu().equal(_total(map(_matrix, range(n)))):
        return [x, *[NOT_TRIED] * 2]
    y = _row(here.rank, n).to(here.device)
    answer(y, n)
    if here.rank >= m:
        return [x, y, None]
    z = _single(here.rank).to(here.device)
    answer(z, m)
    return [x, y, z]


def expected(n: int) -> list[list[Any]]:
    whole = [_total(map(_matrix, range(n))), _total(_row(r, n) for r in range(n))]
    single = _total(map(_single, range(n - 1))) if n > 1 else None
    return [[*whole, single if rank < n - 1 else None] for rank in range(n)]


def labels(n: int) -> list[str]:
    return [f"x of 2 × 3 (n = {n})", f"x of {n + 1} elements (n = {n})",
            f"x of one element (n = {n - 1})"]  # fmt: skip


def most_bytes(n: int) -> int:
    """Return what the largest sender needs: every chunk but the smallest, twice, of each tensor."""
    single = 1 - 1 // (n - 1) if n > 1 else 0
    return 2 * (
        (SIZE - SIZE // n) * ITEM + (n + 1 - (n + 1) // n) * FLOAT
        + single * ITEM
    )  # fmt: skip


def _half_done(n: int) -> list[torch.Tensor]:
    """Play reduce-scatter alone."""
    held = [list(_matrix(rank).view(-1).tensor_split(n)) for rank in range(n)]
    rows = play_ring(held, lambda r, k, n: r - k - 1, lambda r, k, n: r - k - 2, add=True)
    return [row.view(ROWS, COLUMNS) for row in rows]


@some_rank
def _partial(mine: Any, its: Any) -> bool:
    """Return whether an element is the sum of some ranks only, each at most once, or of fewer ranks
    than another."""
    x, factors = mine[0].cpu(), _matrix(0)
    sums = [str(s) for s in (x // factors).view(-1).tolist()]
    digits = set("".join(sums))
    some_only = bool((x % factors == 0).all()) and digits <= {"0", "1"} and "0" in digits
    return some_only or len(set(map(len, sums))) > 1


def _rest_is_left(yours: Any, expected: Any, n: int) -> bool:
    """Return whether the matrix is right but for its last elements, which are as they were."""
    whole = SIZE // n * n
    matrices = [
        (y[0].view(-1), e[0].view(-1), _matrix(rank).view(-1))
        for rank, (y, e) in enumerate(zip(yours, expected, strict=True))
    ]
    return 0 < whole < SIZE and all(
        same(y[:whole], e[:whole]) and same(y[whole:], own[whole:]) for y, e, own in matrices
    )


EXERCISE = Exercise(
    id="03-4",
    title="The whole ring",
    answer="ring_all_reduce",
    setup=EXCHANGE + HALVES,
    trial=trial,
    expected=expected,
    entries=labels,
    forbids=COLLECTIVES,
    goals=(
        Goal("messages sent", most=lambda n: 4 * (n - 1) + 2 * max(n - 2, 0)),
        Goal("bytes sent", most=most_bytes),
    ),
    mistakes=(
        SENDS_FIRST,
        Mistake(
            "Ranks wait for a message that nobody sends. The steps use len(chunks) as the number "
            "of ranks in the ring: torch.chunk may make fewer chunks than you ask for (of six "
            "elements for four ranks only three), and world_size may be more than n. With "
            "tensor_split(n) there are exactly n.",
            stuck=ENDED,
            raises=r"IndexError: (?:list|tuple) index out of range",
        ),
        Mistake(
            "x may have any shape, and a single number has no dimension along which it can be cut. "
            "Cut x.view(-1), which is one row of all elements, in the place of x.",
            raises=r"at least a 1-dimensional tensor",
        ),
        too_small(
            "it is too short for the longest chunk, which with tensor_split is the first",
            rf"RuntimeError: {UNEQUAL}",
        ),
        Mistake(
            "x is unchanged: the sum has to be in x itself. view and tensor_split share x's "
            "memory; clone, and a new tensor that you return, do not.",
            when=first_is(lambda n: [_matrix(r) for r in range(n)]),
        ),
        Mistake(
            "One chunk on each rank is finished and the others are partial sums: this is "
            "reduce-scatter. The all-gather is missing.",
            when=first_is(_half_done),
        ),
        Mistake(
            "The last elements are left out where n does not divide their number: tensor_split and "
            "chunk put them into chunks too, which need not be of equal length.",
            when=_rest_is_left,
        ),
        Mistake(
            "There are partial sums left: both halves take n - 1 steps, all of the first before "
            "the second begins.",
            when=_partial,
        ),
        Mistake(
            "The sum is right, but you send too many bytes. Cut the elements as one row, "
            "x.view(-1), into n chunks that differ by at most one element: not the rows of a "
            "matrix, and not padded to equal lengths.",
            missed="bytes sent",
        ),
    ),
    hints=(
        "You have both halves. What is left is to cut x, and to take all their steps in order.",
        "Cut x as one row into n chunks, some of which may be empty, and make a buffer. Then all "
        "steps of the first half, then all of the second.",
        "x.view(-1).tensor_split(n) cuts; the first chunk is the longest, so torch.empty_like of "
        "it is a buffer for all. Then two loops over range(n - 1), one after the other.",
    ),
)
