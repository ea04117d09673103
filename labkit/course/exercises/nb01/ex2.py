"""Exercise 01-2: exchange tensors with a partner: start both messages, then wait for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...exercise import COLLECTIVES, Exercise, Goal, Here, Mistake
from ...mistakes import Predicate
from .messages import (
    CASES,
    NOT_WAITED_FOR,
    OTHER_DTYPE,
    brought,
    changes_x,
    gives,
    has_no_tensor,
    simulation,
    try_cases,
)


def _peers(rank: int, world_size: int) -> list[int | None]:
    """Return a rank's partner in each case, None where it has none: the neighbour, then the rank
    as far from the end as this one from the start."""
    neighbour, opposite = rank ^ 1, world_size - 1 - rank
    return [
        neighbour if neighbour < world_size else None,
        opposite if opposite != rank else None,
    ]


def trial(answer: Callable[[torch.Tensor, int], Any], here: Here) -> list[Any] | None:
    """Exchange in each case; a rank without a partner does nothing.

    On the CPU, which gloo serves in every lab: messages that cross hang on NCCL outside a batch.
    """
    peers = iter(_peers(here.rank, here.world_size))

    def with_peer(x: torch.Tensor) -> Any:
        peer = next(peers)
        return None if peer is None else answer(x, peer)

    return try_cases(with_peer, here, brought(here.rank))


def _from_peer(xs: Sequence[torch.Tensor], rank: int) -> torch.Tensor | None:
    case = 0 if xs[0].is_floating_point() else 1
    peer = _peers(rank, len(xs))[case]
    return None if peer is None else xs[peer]


def _gives_that_of(chosen: Callable[[int], int]) -> Predicate:
    """Return the predicate of ranks with a partner that return the x of ``chosen(rank)``."""
    return gives(lambda xs, r: None if _from_peer(xs, r) is None else xs[chosen(r)])


EXERCISE = Exercise(
    id="01-2",
    title="Exchange with a neighbour",
    answer="exchange",
    setup="keep = []",
    trial=trial,
    expected=simulation(_from_peer),
    entries=(
        f"{CASES[0]}, peer: the neighbour",
        f"{CASES[1]}, peer: the opposite rank",
        "x afterwards",
    ),
    forbids=(*COLLECTIVES, "send", "recv"),
    goals=(Goal("messages sent", most=lambda n: 2),),
    seconds=10.0,
    mistakes=(
        Mistake(
            "Both ranks wait for the send before they start the receive: start both messages, "
            "then wait for both.",
            stuck=r"Cause: Every one of them sends before it receives",
        ),
        Mistake(
            "Both ranks wait for the receive before they start the send: start both messages, then "
            "wait for both.",
            stuck=r"Cause: Every one of them waits to receive before it sends",
        ),
        Mistake(
            "The loop calls is_completed() until it is true. On gloo it becomes true only in "
            "wait(), so the loop never ends: call wait() instead.",
            stuck=r"is_completed\(\)",
        ),
        OTHER_DTYPE,
        Mistake(
            "Return the tensor that irecv has filled, not a Work and not a list.",
            when=has_no_tensor,
            raises=r"cannot pickle '.*Work' object",
        ),
        *NOT_WAITED_FOR,
        Mistake(
            "x was changed: it belongs to the caller, and the send may still be reading it. "
            "Receive into a separate buffer, and return that.",
            when=changes_x,
        ),
        Mistake(
            "You return your own x. What the other rank sent is in the buffer that irecv has "
            "filled.",
            when=_gives_that_of(lambda rank: rank),
        ),
        Mistake(
            "The partner is not always the neighbour: exchange with the rank that is passed as "
            "peer.",
            when=_gives_that_of(lambda rank: rank ^ 1),
        ),
    ),
    hints=(
        "Make two calls that return at once, then wait for both. You also need a buffer to "
        "receive into.",
        "isend and irecv each return a Work. Until wait() has returned on both, do not change x "
        "and do not read the buffer.",
        "The order of the two starts does not matter, and neither does the order of the two "
        "waits. What matters is that both messages are started before the first wait.",
    ),
)
