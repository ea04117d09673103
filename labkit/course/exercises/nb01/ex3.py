"""Exercise 01-3: shift tensors around the ring without a deadlock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...answers import body
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from .messages import come_late, everywhere, listed, numbers_of


def trial(answer: Callable[[torch.Tensor], torch.Tensor], here: Here) -> Any:
    """Shift once round the ring, odd ranks being slow."""
    come_late(here)
    return listed(answer(torch.tensor(numbers_of(here.rank), device=here.device)))


def expected(world_size: int) -> list[list[float]]:
    return [numbers_of((rank - 1) % world_size) for rank in range(world_size)]


EXERCISE = Exercise(
    id="01-3",
    title="Shift around a ring",
    answer="shift",
    setup="keep = []",
    trial=trial,
    expected=expected,
    forbids=("all_gather", "all_to_all", "all_to_all_single", "broadcast", "scatter"),
    goals=(Goal("messages sent", most=lambda n: 1),),
    mistakes=(
        Mistake(
            "There is no rank world_size: after the last rank comes rank 0, so count modulo "
            "world_size.",
            raises=r"There is no rank -?\d+ in this group",
            shown_by={
                "forgets that a ring closes": body("""
                    received = torch.zeros_like(x)
                    ops = [dist.P2POp(dist.irecv, received, (rank - 1) % world_size)]
                    ops.append(dist.P2POp(dist.isend, x, rank + 1))
                    for work in dist.batch_isend_irecv(ops):
                        work.wait()
                    return received
                """),
            },
        ),
        Mistake(
            "Every rank sends first, and no send returns before its message is received: use "
            "batch_isend_irecv, or let one rank receive first.",
            stuck=r"Cause: Every one of them sends before it receives",
            shown_by={
                "sends first, on every rank": body("""
                    received = torch.zeros_like(x)
                    dist.send(x, (rank + 1) % world_size)
                    dist.recv(received, (rank - 1) % world_size)
                    return received
                """),
            },
        ),
        Mistake(
            "It went the other way round: send to rank + 1, receive from rank - 1.",
            when=lambda yours, expected, n: (
                n > 2 and everywhere(yours, lambda r, v: v == numbers_of((r + 1) % n))
            ),
            shown_by={
                "goes the other way": body("""
                    received = torch.zeros_like(x)
                    ops = [dist.P2POp(dist.isend, x, (rank - 1) % world_size)]
                    ops.append(dist.P2POp(dist.irecv, received, (rank + 1) % world_size))
                    for work in dist.batch_isend_irecv(ops):
                        work.wait()
                    return received
                """),
            },
        ),
        Mistake(
            "You return your own x: the neighbour's is in the tensor that you received into.",
            when=lambda yours, expected, n: everywhere(yours, lambda r, v: v == numbers_of(r)),
            shown_by={
                "returns what it sent": body("""
                    received = torch.zeros_like(x)
                    ops = [dist.P2POp(dist.isend, x, (rank + 1) % world_size)]
                    ops.append(dist.P2POp(dist.irecv, received, (rank - 1) % world_size))
                    for work in dist.batch_isend_irecv(ops):
                        work.wait()
                    return x
                """),
            },
        ),
        Mistake(
            "Some ranks return numbers that nobody has sent: wait for every work before you "
            "read what it receives.",
            when=lambda yours, expected, n: any(v not in expected for v in yours),
            shown_by={
                "does not wait": body("""
                    received = torch.zeros_like(x)
                    ops = [dist.P2POp(dist.isend, x, (rank + 1) % world_size)]
                    ops.append(dist.P2POp(dist.irecv, received, (rank - 1) % world_size))
                    keep.append((x, dist.batch_isend_irecv(ops)))
                    return received
                """),
            },
        ),
    ),
    also_wrong={
        "takes it from a collective": Wrong(
            body("""
                everyone = [torch.empty_like(x) for _ in range(world_size)]
                dist.all_gather(everyone, x)
                return everyone[rank - 1]
            """),
            says="forbidden: all_gather",
        ),
    },
    another=body("""
        received = torch.zeros_like(x)
        left, right = (rank - 1) % world_size, (rank + 1) % world_size
        if rank == 0:
            dist.send(x, right)
            dist.recv(received, left)
        else:
            dist.recv(received, left)
            dist.send(x, right)
        return received
    """),
    hints=(
        "To whom do you send, from whom do you receive? Both are found with % world_size.",
        "A list of two P2POp, one with dist.isend and one with dist.irecv, given to "
        "batch_isend_irecv. Then wait for all works that it returns.",
        "ops = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, received, left)], "
        "then for work in dist.batch_isend_irecv(ops): work.wait().",
    ),
)
