"""Exercise 01-4: repair an exchange with both neighbours that a deadlock report describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...exercise import COLLECTIVES, Exercise, Goal, Here, Mistake
from ...mistakes import Predicate
from .messages import (
    CHANGES_X,
    NO_TENSOR,
    OVERWRITTEN,
    gives,
    has_other_dtype,
    simulation,
    try_cases,
)


def _signals(rank: int) -> list[torch.Tensor]:
    """Return a rank's part of a signal in each case: several numbers, and a single one."""
    return [
        torch.tensor([10.0 * rank + 1, 10.0 * rank + 2, 10.0 * rank + 3]),
        torch.tensor([5 - 3 * rank], dtype=torch.int64),
    ]


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any] | None:
    """Add the halo in each case.

    On the CPU, which gloo serves in every lab: NCCL's buffers would hide the deadlock.
    """
    return try_cases(answer, here, _signals(here.rank))


def _with_halo(
    xs: Sequence[torch.Tensor], rank: int, left: int = -1, right: int = 0, ring: bool = False
) -> torch.Tensor:
    """Return a rank's x between the number at ``left`` of the rank before and that at ``right`` of
    the rank after."""
    zero, n = torch.zeros_like(xs[rank][0]), len(xs)
    before = xs[rank - 1][left] if rank or ring else zero
    after = xs[(rank + 1) % n][right] if rank < n - 1 or ring else zero
    return torch.stack([before, *xs[rank], after])


expected = simulation(_with_halo, _signals)


def _gives(give: Callable[[Sequence[torch.Tensor], int], torch.Tensor]) -> Predicate:
    return gives(give, _signals)


def _keeps(before: bool, after: bool) -> Predicate:
    """Return the predicate of a result in which the halos that are not kept are 0."""
    return _gives(
        lambda xs, r: _with_halo(xs, r) * torch.tensor([before, *[True] * len(xs[r]), after])
    )


def _exchanged(xs: Sequence[torch.Tensor], rank: int) -> torch.Tensor:
    right = _with_halo(xs, rank)
    return torch.cat([right[-1:], right[1:-1], right[:1]])


def _too_early(yours: Any, expected: Any, world_size: int) -> bool:
    """Return whether all is right but halos of the first case that are still 0, or were overwritten
    by the trial before they were sent."""
    pairs = [
        pair for mine, right in zip(yours, expected, strict=True)
        for pair in zip(mine[0], right[0], strict=True)
    ]  # fmt: skip
    wrong = [mine for mine, right in pairs if mine != right]
    return bool(wrong) and set(wrong) <= {0.0, float(OVERWRITTEN)}


EXERCISE = Exercise(
    id="01-4",
    title="Repair it",
    answer="with_halo",
    setup="keep = []",
    trial=trial,
    expected=expected,
    entries=("x: three float32 numbers", "x: one int64 number", "x afterwards"),
    forbids=COLLECTIVES,
    goals=(Goal("messages sent", most=lambda n: 4),),
    mistakes=(
        Mistake(
            "The ranks are stuck as before: at a cut, both neighbours send first. Find the two "
            "ranks that each wait in a send to the other. Start all four messages of a rank in one "
            "batch, or let one of the two receive first.",
            stuck=r"Cause: Every one of them sends before it receives",
        ),
        Mistake(
            "Now both neighbours at a cut receive first, and neither sends. Start all messages of "
            "a rank in one batch, or change the order in one of the two blocks only.",
            stuck=r"Cause: Every one of them waits to receive before it sends",
        ),
        Mistake(
            "There is no rank before rank 0 and none after the last: keep the conditions of the "
            "two blocks, and the ranks in them.",
            raises=r"There is no rank -?\d+ in this group",
        ),
        Mistake(
            "The dtype of the result differs from that of x: keep dtype=x.dtype.",
            when=has_other_dtype,
        ),
        Mistake(
            "A message is longer than the place in which it is received: each send has one number, "
            "each receive takes one, and all are of x's dtype (dtype=x.dtype).",
            raises=r"Died: signal 6",
        ),
        NO_TENSOR,
        CHANGES_X,
        Mistake(
            "All halos are 0: no number of a neighbour is in the result. Send numbers of x, and "
            "receive them into padded.",
            when=_keeps(False, False),
        ),
        Mistake(
            "Only one side has its halo. Each cut needs two messages, one in each direction.",
            when=_keeps(True, False) | _keeps(False, True),
        ),
        Mistake(
            "The halo comes from the wrong end of the neighbour: take the last number of the rank "
            "before, and the first number of the rank after. What you send to the rank before is "
            "your first number, x[:1].",
            when=_gives(lambda xs, r: _with_halo(xs, r, left=0, right=-1))
            | _gives(lambda xs, r: _with_halo(xs, r, left=0))
            | _gives(lambda xs, r: _with_halo(xs, r, right=-1)),
        ),
        Mistake(
            "The two halos are swapped: the number from the rank before goes to the front, the "
            "number from the rank after to the end.",
            when=_gives(_exchanged),
        ),
        Mistake(
            "The first and the last rank are not neighbours: the signal has a 0 at both ends.",
            when=_gives(lambda xs, r: _with_halo(xs, r, ring=True)),
        ),
        Mistake(
            "A message was not complete when the function returned: wait for every Work, of sends "
            "and of receives.",
            when=_too_early,
        ),
        Mistake(
            "Ranks still wait for each other. Go through the report cut by cut: which call does "
            "each of the two neighbours make first, and do these calls match?",
            stuck=r"Deadlock: ranks? ",
        ),
        Mistake(
            "The result is right, but some ranks send more than two messages: one number to each "
            "neighbour is enough.",
            missed="messages sent",
        ),
    ),
    hints=(
        "Look at one cut, between ranks 0 and 1. Which of the two calls does each of them make "
        "first?",
        "No order of the calls is needed if all of a rank's messages are started together: collect "
        "them in a list, and pass it to batch_isend_irecv.",
        "In each block, append two P2POp to the list, one with dist.isend and one with dist.irecv. "
        "Start the batch after both blocks, and wait for every Work.",
    ),
)
