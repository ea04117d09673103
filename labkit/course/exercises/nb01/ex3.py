"""Exercise 01-3: shift tensors around the ring without a deadlock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import COLLECTIVES, Exercise, Goal, Here, Mistake, Wrong
from .messages import (
    ENTRIES,
    brought,
    changes_only_x,
    comes_too_early,
    gives,
    has_no_tensor,
    has_other_dtype,
    is_overwritten,
    played,
    try_cases,
)


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any] | None:
    return try_cases(answer, here, [x.to(here.device) for x in brought(here.rank)])


#: Shift in one process.
expected = played(lambda xs, r: xs[r - 1])


def _into_x(yours: Any, expected: Any, world_size: int) -> bool:
    """Tell whether no x is as it was, and no result is right."""
    return all(
        not mine[-1] and mine[:-1] != right[:-1]
        for mine, right in zip(yours, expected, strict=True)
    )


def _other_way(yours: Any, expected: Any, world_size: int) -> bool:
    return world_size > 2 and gives(lambda xs, r: xs[(r + 1) % len(xs)])(
        yours, expected, world_size
    )


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
            shown_by={
                "forgets that a ring closes": edit("(rank + 1) % world_size", "rank + 1"),
                "begins below zero": edit("(rank - 1) % world_size", "rank - 1"),
            },
        ),
        Mistake(
            "Every rank waits for its send before it reaches its receive, and on gloo no send is "
            "complete before its message is received: pass both messages to one "
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
            "The messages do not pair up. What a rank sends to (rank + 1) % world_size comes there "
            "from (rank - 1) % world_size: receive from the other side than you send to.",
            stuck=r"Cause: The sends and receives do not pair|rank 1 waits in recv from rank [^0]",
            shown_by={
                "receives from the rank that it sends to": edit(
                    "dist.irecv, received, left", "dist.irecv, received, right"
                ),
                "sends to the rank that it receives from": edit(
                    "dist.isend, x, right", "dist.isend, x, left"
                ),
                "waits for the wrong side": body("""
                    received = torch.empty_like(x)
                    right = (rank + 1) % world_size
                    work = dist.isend(x, right)
                    dist.recv(received, right)
                    work.wait()
                    return received
                """),
                "receives first, from the wrong side": body("""
                    received = torch.empty_like(x)
                    dist.recv(received, (rank + 1) % world_size)
                    dist.send(x, (rank + 1) % world_size)
                    return received
                """),
            },
        ),
        Mistake(
            "Every rank receives first, so no rank reaches its send: use batch_isend_irecv, or "
            "let one rank send first.",
            stuck=r"Cause: Every one of them waits to receive before it sends",
            shown_by={
                "receives first, on every rank": body("""
                    received = torch.zeros_like(x)
                    dist.recv(received, (rank - 1) % world_size)
                    dist.send(x, (rank + 1) % world_size)
                    return received
                """),
            },
        ),
        Mistake(
            "The buffer's dtype differs from that of x. torch.empty_like(x) has the shape, the "
            "dtype and the device of x; torch.zeros(x.shape) is float32.",
            when=has_other_dtype,
            raises=r"Died: signal 6",
            shown_by={
                "receives int32 as float32": edit("torch.empty_like(x)", "torch.zeros(x.shape)"),
            },
        ),
        Mistake(
            "Return a tensor like x, not a Work, a list or a number.",
            when=has_no_tensor,
            raises=r"cannot pickle '.*Work' object",
            shown_by={"returns a list": edit("return received", "return received.tolist()")},
        ),
        Mistake(
            "The results are right, but x was changed: receive into a separate buffer.",
            when=changes_only_x,
            shown_by={
                "copies the result into x": edit("return received", "return x.copy_(received)")
            },
        ),
        Mistake(
            "P2POp takes the function itself, dist.isend or dist.irecv, without brackets: the "
            "batch calls it.",
            raises=r"Invalid ``op``",
            shown_by={
                "calls isend in the list": edit(
                    "dist.P2POp(dist.isend, x, right)",
                    "dist.P2POp(dist.isend(x, right), x, right)",
                ),
            },
        ),
        Mistake(
            "The two tensors are swapped: isend takes x, irecv takes the buffer.",
            when=_into_x,
            shown_by={
                "exchanges the two tensors": edit(
                    "torch.empty_like(x)",
                    "torch.zeros_like(x)",
                    "(dist.isend, x,",
                    "(dist.isend, received,",
                    "(dist.irecv, received,",
                    "(dist.irecv, x,",
                ),
            },
        ),
        Mistake(
            "Only rank 0 is wrong: the ring is not closed. The last rank sends to rank 0, and "
            "rank 0 receives from it, so count modulo world_size instead of leaving the ends out.",
            when=lambda yours, expected, n: (
                n > 2 and yours[0][:-1] != expected[0][:-1] and yours[1:] == expected[1:]
            ),
            shown_by={
                "leaves out the ends": body("""
                    received = torch.zeros_like(x)
                    works = []
                    if rank < world_size - 1:
                        works.append(dist.isend(x, rank + 1))
                    if rank > 0:
                        works.append(dist.irecv(received, rank - 1))
                    for work in works:
                        work.wait()
                    return received
                """),
                "rank 0 keeps its own": body("""
                    received = x.clone()
                    works = [dist.isend(x, rank + 1)] if rank + 1 < world_size else []
                    works += [dist.irecv(received, rank - 1)] if rank else []
                    for work in works:
                        work.wait()
                    return received
                """),
            },
        ),
        Mistake(
            "Nothing comes from another rank: roll moves the numbers inside of this rank's x. "
            "Send x, and receive what the rank before sends.",
            when=lambda *found: (
                gives(lambda xs, r: xs[r].roll(1, 0))(*found)
                or gives(lambda xs, r: xs[r].roll(-1, 0))(*found)
            ),
            shown_by={
                "rolls its own numbers": body("return x.roll(1)"),
                "rolls them the other way": body("return torch.roll(x, -1)"),
            },
        ),
        Mistake(
            "Some ranks return numbers that no rank passed to shift: wait for every Work before "
            "you read its buffer.",
            when=comes_too_early,
            shown_by={
                "does not wait": edit(
                    "received = torch.empty_like(x)",
                    "received = torch.zeros_like(x)",
                    """
                    for work in dist.batch_isend_irecv(ops):
                        work.wait()
                    """,
                    "keep.append((x, dist.batch_isend_irecv(ops)))",
                ),
            },
        ),
        Mistake(
            "x was overwritten (with -7) before it had been sent: wait for every Work before you "
            "return, also for that of the isend.",
            when=is_overwritten,
            shown_by={
                "waits for the receive only": body("""
                    received = torch.zeros_like(x)
                    keep.append(dist.isend(x, (rank + 1) % world_size))
                    dist.recv(received, (rank - 1) % world_size)
                    return received
                """),
            },
        ),
        Mistake(
            "The tensors move in the wrong direction: send to rank + 1 and receive from rank - 1.",
            when=_other_way,
            shown_by={
                "goes the other way": edit(
                    "(rank + 1) %", "(rank - 1) %", "(rank - 1) %", "(rank + 1) %"
                ),
            },
        ),
        Mistake(
            "You return your own x. The neighbour's x is in the buffer that you received into.",
            when=gives(lambda xs, r: xs[r]),
            shown_by={"returns what it sent": edit("return received", "return x")},
        ),
        Mistake(
            "The results are right, but ranks send several messages. The next rank needs only "
            "this rank's x, which is one message.",
            missed="messages sent",
            shown_by={
                "goes round the ring to the end": body("""
                    right, left = (rank + 1) % world_size, (rank - 1) % world_size
                    carried = x.clone()
                    for _ in range(world_size + 1):
                        received = torch.empty_like(x)
                        ops = [dist.P2POp(dist.isend, carried, right)]
                        ops.append(dist.P2POp(dist.irecv, received, left))
                        for work in dist.batch_isend_irecv(ops):
                            work.wait()
                        carried = received
                    return carried
                """),
            },
        ),
    ),
    also_wrong={
        "writes the number of ranks": Wrong(
            edit(
                "(rank + 1) % world_size",
                "(rank + 1) % 4",
                "(rank - 1) % world_size",
                "(rank - 1) % 4",
            ),
            says="one size",
        ),
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
        "Which rank do you send to, and which do you receive from? % world_size helps with both.",
        "Pass batch_isend_irecv a list of two P2POp, one with dist.isend and one with dist.irecv. "
        "It returns a list of Work to wait for.",
        "Each P2POp takes the function without brackets, a tensor and a rank: for isend, what to "
        "send and to which rank; for irecv, what to fill and from which rank.",
    ),
)
