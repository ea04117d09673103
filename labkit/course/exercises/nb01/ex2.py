"""Exercise 01-2: exchange tensors with a partner: start both messages, then wait for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...exercise import COLLECTIVES, Exercise, Goal, Here, Mistake
from .messages import (
    CASES,
    brought,
    comes_too_early,
    gives,
    has_no_tensor,
    has_other_dtype,
    is_overwritten,
    played,
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


def _own(xs: Sequence[torch.Tensor], rank: int) -> torch.Tensor | None:
    return None if _from_peer(xs, rank) is None else xs[rank]


def _neighbours(xs: Sequence[torch.Tensor], rank: int) -> torch.Tensor | None:
    return None if _from_peer(xs, rank) is None else xs[rank ^ 1]


def _changes_x(yours: Any, expected: Any, world_size: int) -> bool:
    return not all(value[-1] for value in yours if value is not None)


EXERCISE = Exercise(
    id="01-2",
    title="Exchange with a neighbour",
    answer="exchange",
    setup="keep = []",
    trial=trial,
    expected=played(_from_peer),
    entries=(
        f"{CASES[0]}, peer: the neighbour",
        f"{CASES[1]}, peer: the opposite rank",
        "x is as it was",
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
        Mistake(
            "The buffer's dtype differs from that of x. torch.empty_like(x) has the shape and the "
            "dtype of x; torch.zeros(x.shape) is float32.",
            when=has_other_dtype,
            raises=r"Died: signal 6",
        ),
        Mistake(
            "Return the tensor that irecv has filled, not a Work and not a list.",
            when=has_no_tensor,
            raises=r"cannot pickle '.*Work' object",
        ),
        Mistake(
            "The result was read before the message had arrived: the function returned without "
            "waiting for its irecv.",
            when=comes_too_early,
        ),
        Mistake(
            "x was overwritten (with -7) before it had been sent: the function returned without "
            "waiting for its isend.",
            when=is_overwritten,
        ),
        Mistake(
            "x was changed: it belongs to the caller, and the send may still be reading it. "
            "Receive into a separate buffer, and return that.",
            when=_changes_x,
        ),
        Mistake(
            "You return your own x. What the other rank sent is in the buffer that irecv has "
            "filled.",
            when=gives(_own),
        ),
        Mistake(
            "The partner is not always the neighbour: exchange with the rank that is passed as "
            "peer.",
            when=gives(_neighbours),
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
