"""Exercise 01-3: shift tensors around the ring without a deadlock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import COLLECTIVES, Exercise, Goal, Here, Mistake
from ...mistakes import every_rank
from .messages import (
    CHANGED,
    ENTRIES,
    NO_TENSOR,
    NOT_WAITED_FOR,
    OTHER_DTYPE,
    brought,
    changes_only_x,
    gives,
    simulation,
    try_cases,
)


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any] | None:
    return try_cases(answer, here, [x.to(here.device) for x in brought(here.rank)])


expected = simulation(lambda xs, r: xs[r - 1])


EXERCISE = Exercise(
    id="01-3",
    title="Shift around a ring",
    answer="shift",
    setup="keep = []",
    trial=trial,
    expected=expected,
    entries=ENTRIES,
    forbids=COLLECTIVES,
    goals=(Goal("messages sent", most=lambda n: 2),),
    mistakes=(
        Mistake(
            "There is no rank world_size and no rank below 0. After the last rank comes rank 0, "
            "so count modulo world_size.",
            raises=r"There is no rank -?\d+ in this group",
        ),
        Mistake(
            "Every rank waits for its send before it reaches its receive, and on gloo no send is "
            "complete before its message is received: pass both messages to one "
            "batch_isend_irecv, or let one rank receive first.",
            stuck=r"Cause: Every one of them sends before it receives",
        ),
        Mistake(
            "The messages do not pair up. What a rank sends to (rank + 1) % world_size comes there "
            "from (rank - 1) % world_size: receive from the other side than you send to.",
            stuck=r"Cause: The sends and receives do not pair|rank 1 waits in recv from rank [^0]",
        ),
        Mistake(
            "Every rank receives first, so no rank reaches its send: use batch_isend_irecv, or "
            "let one rank send first.",
            stuck=r"Cause: Every one of them waits to receive before it sends",
        ),
        OTHER_DTYPE,
        NO_TENSOR,
        Mistake(
            "The results are right, but x was changed: receive into a separate buffer.",
            when=changes_only_x,
        ),
        Mistake(
            "P2POp takes the function itself, dist.isend or dist.irecv, without brackets: the "
            "batch calls it.",
            raises=r"Invalid ``op``",
        ),
        Mistake(
            "The two tensors are swapped: isend takes x, irecv takes the buffer.",
            when=every_rank(lambda mine, its: mine[-1] == CHANGED and mine[:-1] != its[:-1]),
        ),
        Mistake(
            "Only rank 0 is wrong: the ring is not closed. The last rank sends to rank 0, and "
            "rank 0 receives from it, so count modulo world_size instead of leaving the ends out.",
            when=lambda yours, expected, n: (
                n > 2 and yours[0][:-1] != expected[0][:-1] and yours[1:] == expected[1:]
            ),
        ),
        Mistake(
            "Nothing comes from another rank: roll moves the numbers inside of this rank's x. "
            "Send x, and receive what the rank before sends.",
            when=gives(lambda xs, r: xs[r].roll(1, 0)) | gives(lambda xs, r: xs[r].roll(-1, 0)),
        ),
        *NOT_WAITED_FOR,
        Mistake(
            "The tensors move in the wrong direction: send to rank + 1 and receive from rank - 1.",
            when=gives(lambda xs, r: xs[(r + 1) % len(xs)]),
        ),
        Mistake(
            "You return your own x. The neighbour's x is in the buffer that you received into.",
            when=gives(lambda xs, r: xs[r]),
        ),
        Mistake(
            "The results are right, but ranks send several messages. The next rank needs only "
            "this rank's x, which is one message.",
            missed="messages sent",
        ),
    ),
    hints=(
        "Which rank do you send to, and which do you receive from? % world_size helps with both.",
        "Pass batch_isend_irecv a list of two P2POp, one with dist.isend and one with dist.irecv. "
        "It returns a list of Work to wait for.",
        "Each P2POp takes the function without brackets, a tensor and a rank: for isend, what to "
        "send and to which rank; for irecv, what to fill and from which rank.",
    ),
)
