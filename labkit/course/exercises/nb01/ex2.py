"""Exercise 01-2: exchange tensors with a partner: start both messages, then wait for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import COLLECTIVES, Exercise, Goal, Here, Mistake, Wrong
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
            shown_by={
                "waits for the send at once": body("""
                    received = torch.zeros_like(x)
                    dist.isend(x, peer).wait()
                    dist.irecv(received, peer).wait()
                    return received
                """),
            },
        ),
        Mistake(
            "Both ranks wait for the receive before they start the send: start both messages, then "
            "wait for both.",
            stuck=r"Cause: Every one of them waits to receive before it sends",
            shown_by={
                "waits for the receive at once": body("""
                    received = torch.zeros_like(x)
                    dist.irecv(received, peer).wait()
                    dist.isend(x, peer).wait()
                    return received
                """),
            },
        ),
        Mistake(
            "The loop calls is_completed() until it is true. On gloo it becomes true only in "
            "wait(), so the loop never ends: call wait() instead.",
            stuck=r"is_completed\(\)",
            shown_by={
                "asks again and again": edit(
                    """
                    for work in works:
                        work.wait()
                    """,
                    """
                    while not all(work.is_completed() for work in works):
                        pass
                    """,
                ),
            },
        ),
        Mistake(
            "The buffer's dtype differs from that of x. torch.empty_like(x) has the shape and the "
            "dtype of x; torch.zeros(x.shape) is float32.",
            when=has_other_dtype,
            raises=r"Died: signal 6",
            shown_by={
                "receives int32 as float32": edit("torch.empty_like(x)", "torch.zeros(x.shape)"),
            },
        ),
        Mistake(
            "Return the tensor that irecv has filled, not a Work and not a list.",
            when=has_no_tensor,
            raises=r"cannot pickle '.*Work' object",
            shown_by={
                "returns the works": edit("return received", "return works"),
                "returns a list": edit("return received", "return received.tolist()"),
            },
        ),
        Mistake(
            "The result was read before the message had arrived: the function returned without "
            "waiting for its irecv.",
            when=comes_too_early,
            shown_by={
                "waits for nothing": body("""
                    received = torch.zeros_like(x)
                    dist.isend(x, peer)
                    dist.irecv(received, peer)
                    return received
                """),
                "waits for the send only": body("""
                    received = torch.zeros_like(x)
                    sending = dist.isend(x, peer)
                    keep.append(dist.irecv(received, peer))
                    sending.wait()
                    return received
                """),
            },
        ),
        Mistake(
            "x was overwritten (with -7) before it had been sent: the function returned without "
            "waiting for its isend.",
            when=is_overwritten,
            shown_by={
                "waits for the receive only": body("""
                    received = torch.zeros_like(x)
                    keep.append(dist.isend(x, peer))
                    dist.irecv(received, peer).wait()
                    return received
                """),
            },
        ),
        Mistake(
            "x was changed: it belongs to the caller, and the send may still be reading it. "
            "Receive into a separate buffer, and return that.",
            when=_changes_x,
            shown_by={
                "receives into x": body("""
                    works = [dist.isend(x, peer), dist.irecv(x, peer)]
                    for work in works:
                        work.wait()
                    return x.clone()
                """),
            },
        ),
        Mistake(
            "You return your own x. What the other rank sent is in the buffer that irecv has "
            "filled.",
            when=gives(_own),
            shown_by={"returns x": edit("return received", "return x")},
        ),
        Mistake(
            "The partner is not always the neighbour: exchange with the rank that is passed as "
            "peer.",
            when=gives(_neighbours),
            shown_by={
                "always takes the neighbour": edit(
                    "dist.isend(x, peer)",
                    "dist.isend(x, rank ^ 1)",
                    "irecv(received, peer)",
                    "irecv(received, rank ^ 1)",
                ),
            },
        ),
    ),
    also_wrong={
        "takes turns with blocking calls": Wrong(
            body("""
                received = torch.zeros_like(x)
                if rank < peer:
                    dist.send(x, peer)
                    dist.recv(received, peer)
                else:
                    dist.recv(received, peer)
                    dist.send(x, peer)
                return received
            """),
            says="forbidden: recv",
        ),
    },
    another=edit(
        """
        works = [dist.isend(x, peer), dist.irecv(received, peer)]
        for work in works:
            work.wait()
        """,
        """
        receiving = dist.irecv(received, src=peer)
        sending = dist.isend(x, dst=peer)
        sending.wait()
        receiving.wait()
        """,
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
