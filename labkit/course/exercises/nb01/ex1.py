"""Exercise 01-1: pass a running sum along the chain of ranks, with one message per rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from .messages import everywhere, listed, numbers_of


def trial(answer: Callable[[torch.Tensor], torch.Tensor], here: Here) -> Any:
    return listed(answer(torch.tensor(numbers_of(here.rank), device=here.device)))


def expected(world_size: int) -> list[list[float]]:
    """Add up in one process."""
    brought = torch.tensor([numbers_of(rank) for rank in range(world_size)])
    return [row.tolist() for row in brought.cumsum(0)]


EXERCISE = Exercise(
    id="01-1",
    title="Pass a sum along the chain",
    answer="running_sum",
    trial=trial,
    expected=expected,
    forbids=("all_reduce", "reduce", "all_gather", "gather", "broadcast"),
    goals=(Goal("messages sent", most=lambda n: 1),),
    mistakes=(
        Mistake(
            "The last rank sends too, to a rank that does not exist: the chain ends there.",
            raises=r"There is no rank \d+ in this group",
            shown_by={
                "lets the last rank send too": edit(
                    """
                    if rank < world_size - 1:
                        dist.send(total, dst=rank + 1)
                    """,
                    "dist.send(total, dst=rank + 1)",
                ),
            },
        ),
        Mistake(
            "Rank 0 has nobody before it: it begins, and receives nothing.",
            raises=r"There is no rank -\d+ in this group",
            stuck=r"rank 0 waits in recv from",
            shown_by={
                "closes the chain to a ring": body("""
                    before = torch.zeros_like(x)
                    dist.recv(before, (rank - 1) % world_size)
                    dist.send(before + x, (rank + 1) % world_size)
                    return before + x
                """),
            },
        ),
        Mistake(
            "You pass on your own x: pass on the sum that you have so far.",
            when=lambda yours, expected, n: everywhere(
                yours[1:],
                lambda r, v: (
                    v == [a + b for a, b in zip(numbers_of(r), numbers_of(r + 1), strict=True)]
                ),
            ),
            shown_by={"passes on its own tensor": edit("total,", "x,")},
        ),
        Mistake(
            "Rank 0's tensor goes down the chain unchanged: add your own x before you send.",
            when=lambda yours, expected, n: everywhere(yours, lambda r, v: v == numbers_of(0)),
            shown_by={
                "never adds": edit(
                    """
                    before = torch.empty_like(x)
                    dist.recv(before, src=rank - 1)
                    total += before
                    """,
                    "dist.recv(total, src=rank - 1)",
                ),
            },
        ),
        Mistake(
            "Your own x is missing: a rank returns what it received plus its own.",
            when=lambda yours, expected, n: everywhere(yours[1:], lambda r, v: v == expected[r]),
            shown_by={
                "adds for the next rank, not for itself": body("""
                    total = torch.zeros_like(x)
                    if rank > 0:
                        dist.recv(total, src=rank - 1)
                    if rank < world_size - 1:
                        dist.send(total + x, rank + 1)
                    return total if rank > 0 else x
                """),
            },
        ),
        Mistake(
            "You return your own x: the sum is in the tensor that you received into.",
            when=lambda yours, expected, n: everywhere(yours, lambda r, v: v == numbers_of(r)),
            shown_by={
                "returns what it brought": edit(
                    """
                    before = torch.empty_like(x)
                    dist.recv(before, src=rank - 1)
                    total += before
                    """,
                    """
                    dist.recv(total, src=rank - 1)
                    total += x
                    """,
                    "return total",
                    "return x",
                ),
            },
        ),
    ),
    also_wrong={
        "asks everybody": Wrong(
            body("""
                everyone = [torch.empty_like(x) for _ in range(world_size)]
                dist.all_gather(everyone, x)
                return sum(everyone[: rank + 1])
            """),
            says="forbidden: all_gather",
        ),
        "sends its tensor to all that come later": Wrong(
            body("""
                total = x.clone()
                other = torch.empty_like(x)
                for source in range(rank):
                    dist.recv(other, source)
                    total += other
                for target in range(rank + 1, world_size):
                    dist.send(x, target)
                return total
            """),
            says="goal: messages sent",
        ),
    },
    another=body("""
        sums = torch.zeros_like(x)
        works = []
        if rank != 0:
            dist.irecv(sums, src=rank - 1).wait()
        sums = sums + x
        if rank + 1 != world_size:
            works.append(dist.isend(sums, dst=rank + 1))
        for work in works:
            work.wait()
        return sums
    """),
    hints=(
        "Rank r does three things: receive from rank r - 1, add, send to rank r + 1. The first "
        "and the last rank leave one of them out.",
        "Begin with total = x.clone(). If rank > 0, receive the sum so far into a new tensor "
        "and add it to total. Then send total, if there is a next rank.",
        "if rank > 0: dist.recv(before, rank - 1); total += before. Then: "
        "if rank < world_size - 1: dist.send(total, rank + 1).",
    ),
)
