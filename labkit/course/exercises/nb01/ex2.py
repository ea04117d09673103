"""Exercise 01-2: exchange tensors with a partner: post both, then wait for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Failed, Goal, Here, Mistake, Wrong
from .messages import come_late, listed, numbers_of

#: What a trial writes into a tensor that an exchange should be done with.
OVERWRITTEN = -1.0


def trial(answer: Callable[[torch.Tensor, int], torch.Tensor], here: Here) -> Any:
    """Exchange between ranks 0 and 1, 2 and 3, …; overwrite what was sent as soon as it returns.

    Odd ranks are slow. A last rank without a partner does nothing.
    """
    rank = here.rank
    peer = rank ^ 1
    if peer >= here.world_size:
        return None
    # On the CPU, which gloo serves in every lab: messages that cross hang on NCCL outside a batch.
    x = torch.tensor(numbers_of(rank))
    come_late(here)
    received = listed(answer(x, peer))
    x.fill_(OVERWRITTEN)
    return received


def expected(world_size: int) -> list[Any]:
    return [numbers_of(r ^ 1) if r ^ 1 < world_size else None for r in range(world_size)]


def _received(yours: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return rank and what it received, of those that exchanged something."""
    return [(r, v) for r, v in enumerate(yours) if v is not None and not isinstance(v, Failed)]


EXERCISE = Exercise(
    id="01-2",
    title="Exchange with a neighbour",
    answer="exchange",
    setup="keep = []",
    trial=trial,
    expected=expected,
    forbids=("all_gather", "all_to_all", "broadcast", "send", "recv"),
    goals=(Goal("messages sent", most=lambda n: 1),),
    mistakes=(
        Mistake(
            "You wait for the send before you post the receive, on both ranks: start both, "
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
            "A rank got back its own numbers: you receive into x, which is still to be sent. "
            "Receive into a tensor of its own.",
            when=lambda yours, expected, n: any(
                got == numbers_of(r) for r, got in _received(yours)
            ),
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
            "The result was read before it had arrived: the function returned without waiting "
            "for its irecv.",
            when=lambda yours, expected, n: any(
                got not in (numbers_of(r ^ 1), [OVERWRITTEN] * 2) for r, got in _received(yours)
            ),
            shown_by={
                "waits for nothing": body("""
                    received = torch.zeros_like(x)
                    dist.isend(x, peer)
                    dist.irecv(received, peer)
                    return received
                """),
            },
        ),
        Mistake(
            "x was overwritten (by -1) before it was read: the function returned without "
            "waiting for its isend.",
            when=lambda yours, expected, n: any(
                got == [OVERWRITTEN] * 2 for _, got in _received(yours)
            ),
            shown_by={
                "waits for the receive only": body("""
                    received = torch.zeros_like(x)
                    sending = dist.isend(x, peer)
                    receiving = dist.irecv(received, peer)
                    receiving.wait()
                    keep.append(sending)
                    return received
                """),
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
        "Two calls that return at once, then two waits. And a new tensor to receive into.",
        "isend and irecv each return a work. As long as wait() has not returned on both, x may "
        "not be changed and the result may not be read.",
        "works = [dist.isend(x, peer), dist.irecv(received, peer)], then work.wait() for each "
        "of them, then return received.",
    ),
)
