"""Exercise 02-4: write a broadcast that passes a tensor on from rank to rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ...answers import body
from ...compare import same
from ...exercise import Exercise, Goal, Here, Mistake, Wrong


def _source(world_size: int) -> int:
    return min(1, world_size - 1)


def trial(answer: Callable[[torch.Tensor, int], Any], here: Here) -> torch.Tensor:
    """Broadcast from rank 1, in place."""
    x = torch.tensor([100.0 * here.rank, 100.0 * here.rank + 1], device=here.device)
    answer(x, _source(here.world_size))
    dist.barrier()
    return x


def expected(world_size: int) -> list[torch.Tensor]:
    """Copy the source's tensor in one process."""
    first = 100.0 * _source(world_size)
    return [torch.tensor([first, first + 1])] * world_size


EXERCISE = Exercise(
    id="02-4",
    title="Build a broadcast of messages",
    answer="pass_on",
    trial=trial,
    expected=expected,
    forbids=(
        "broadcast",
        "all_reduce",
        "all_gather",
        "scatter",
        "all_to_all",
        "broadcast_object_list",
        "send_object_list",
    ),
    goals=(Goal("messages sent", most=lambda n: 1),),
    mistakes=(
        Mistake(
            "Ranks wait for one another. The source sends first, everybody else receives "
            "first, and the last one in the chain does not send at all.",
            stuck=r"waits? in send to",
            shown_by={
                "everybody sends first": body("""
                    dist.send(x, (rank + 1) % world_size)
                    dist.recv(x, (rank - 1) % world_size)
                """),
                "closes the ring": body("""
                    if rank != src:
                        dist.recv(x, (rank - 1) % world_size)
                    dist.send(x, (rank + 1) % world_size)
                """),
            },
        ),
        Mistake(
            "That is what rank 0 had. The chain begins at src, wherever that is.",
            when=lambda yours, expected, n: same(yours, [torch.tensor([0.0, 1.0])] * n),
            shown_by={
                "begins with rank 0": body("""
                    if rank > 0:
                        dist.recv(x, rank - 1)
                    if rank < world_size - 1:
                        dist.send(x, rank + 1)
                """),
            },
        ),
        Mistake(
            "Some ranks still have their own numbers: the chain ends too early, or begins too "
            "late.",
            when=lambda yours, expected, n: any(
                not y.equal(expected[0]) and y.equal(torch.tensor([100.0 * r, 100.0 * r + 1]))
                for r, y in enumerate(yours)
            ),
            shown_by={
                "stops at the last number": body("""
                    if rank > src:
                        dist.recv(x, rank - 1)
                    if src <= rank < world_size - 1:
                        dist.send(x, rank + 1)
                """),
            },
        ),
        Mistake(
            "It works, but the source sends n − 1 messages, one after the other. Let each rank "
            "pass it on to the next one.",
            missed="messages sent",
            shown_by={
                "sends to everybody itself": body("""
                    if rank == src:
                        for other in range(world_size):
                            if other != src:
                                dist.send(x, other)
                    else:
                        dist.recv(x, src)
                """),
            },
        ),
    ),
    also_wrong={
        "calls broadcast": Wrong(body("dist.broadcast(x, src)"), says="forbidden: broadcast"),
    },
    another=body("""
        after, before = (rank + 1) % world_size, (rank - 1) % world_size
        if rank != src:
            dist.irecv(x, before).wait()
        if after != src:
            dist.isend(x, after).wait()
    """),
    hints=(
        "A chain: the source sends to the next rank, which sends to the next, and so on.",
        "Count from the source: step = (rank - src) % world_size is 0 for the source and "
        "world_size - 1 for the last.",
        "If step > 0, receive from the rank before; if step < world_size - 1, send to the rank "
        "after. Both neighbours with % world_size.",
    ),
)
