"""Exercise 01-1: pass a running sum along the chain of ranks, with one message per rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import COLLECTIVES, Exercise, Goal, Here, Mistake, Wrong
from .messages import (
    ENTRIES,
    OVERWRITTEN,
    brought,
    changes_only_x,
    gives,
    has_no_tensor,
    has_other_dtype,
    played,
    try_cases,
)


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any] | None:
    found = try_cases(answer, here, [x.to(here.device) for x in brought(here.rank)])
    return None if found is None else [_as_list(item) for item in found]


def _as_list(item: Any) -> Any:
    """Return a sum of int32 that torch has made int64, as sum() does, as the numbers that it is."""
    return item.tolist() if getattr(item, "dtype", None) == torch.int64 else item


def _sum_to(xs: Sequence[torch.Tensor], rank: int) -> torch.Tensor:
    return torch.stack(list(xs[: rank + 1])).sum(0, dtype=xs[0].dtype)


#: Add up in one process.
expected = played(_sum_to)


def _sent_too_late(yours: Any, expected: Any, world_size: int) -> bool:
    """Tell whether an odd rank added what the trial had written into a sum that was being sent."""
    return any(
        yours[r][0] == [OVERWRITTEN + number for number in brought(r)[0].tolist()]
        for r in range(1, world_size, 2)
    )


def _receives_in_vain(yours: Any, expected: Any, world_size: int) -> bool:
    """Tell whether each rank returned its own x, alone or with what the rank before it returned,
    and one that has a rank before it its own x alone."""
    own = [brought(rank)[0].tolist() for rank in range(world_size)]
    alone = [value[0] == x for value, x in zip(yours, own, strict=True)]
    with_sum = [
        value[0] == [a + b for a, b in zip(before[0], x, strict=True)]
        for before, value, x in zip(yours, yours[1:], own[1:], strict=False)
    ]
    ranks = zip(alone[1:], with_sum, strict=True)
    return alone[0] and any(alone[1:]) and all(map(any, ranks))


EXERCISE = Exercise(
    id="01-1",
    title="Pass a sum along the chain",
    answer="running_sum",
    trial=trial,
    expected=expected,
    entries=ENTRIES,
    forbids=COLLECTIVES,
    goals=(Goal("messages sent", most=lambda n: 2),),
    setup="keep = []",
    mistakes=(
        Mistake(
            "The last rank sends too, to a rank that does not exist. The chain ends with the last "
            "rank.",
            raises=r"There is no rank \d+ in this group(?![\s\S]*recv\()",
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
            "The last rank receives from a rank that does not exist: the sum comes from the other "
            "side, from rank - 1.",
            raises=r"There is no rank \d+ in this group[\s\S]*recv\(",
            shown_by={
                "receives from the rank after": edit("src=rank - 1", "src=rank + 1"),
                "receives from two on": edit("src=rank - 1", "src=rank + 2"),
            },
        ),
        Mistake(
            "Rank 0 waits for a message, but there is no rank before it: rank 0 starts the chain "
            "and receives nothing.",
            raises=r"There is no rank -\d+ in this group",
            stuck=r"rank 0 waits in recv from",
            shown_by={
                "closes the chain to a ring": body("""
                    before = torch.zeros_like(x)
                    dist.recv(before, (rank - 1) % world_size)
                    dist.send(before + x, (rank + 1) % world_size)
                    return before + x
                """),
                "receives on rank 0 too": edit(
                    """
                    if rank > 0:
                        before = torch.empty_like(x)
                        dist.recv(before, src=rank - 1)
                        total += before
                    """,
                    """
                    before = torch.empty_like(x)
                    dist.recv(before, src=rank - 1)
                    total += before
                    """,
                ),
            },
        ),
        Mistake(
            "A rank waits for a sum that is never sent to it: every rank except the last sends to "
            "rank + 1.",
            stuck=r"waits? in recv from rank .*: a send of ranks? .*is missing",
            shown_by={
                "sends nothing": edit(
                    """
                    if rank < world_size - 1:
                        dist.send(total, dst=rank + 1)
                    """,
                    "",
                ),
                "lets rank 0 only receive": edit(
                    "if rank < world_size - 1:",
                    "if rank > 0:",
                    "dst=rank + 1",
                    "dst=(rank + 1) % world_size",
                ),
            },
        ),
        Mistake(
            "A rank sends to a rank that does not receive: every rank except rank 0 receives from "
            "rank - 1, and the last rank sends to nobody.",
            stuck=r"waits? in send to rank .*: a receive of ranks? .*is missing",
            shown_by={
                "receives nothing": edit(
                    """
                    if rank > 0:
                        before = torch.empty_like(x)
                        dist.recv(before, src=rank - 1)
                        total += before
                    """,
                    "",
                ),
            },
        ),
        Mistake(
            "The dtype of the buffer or of the result differs from that of x. torch.empty_like(x) "
            "has the shape, the dtype and the device of x; torch.zeros(x.shape) is float32.",
            when=has_other_dtype,
            raises=r"result type \w+ can't be cast|Died: signal 6",
            shown_by={
                "receives int32 as float32": edit(
                    "before = torch.empty_like(x)", "before = torch.zeros(x.shape)"
                ),
                "returns the sum as float32": edit("return total", "return total.float()"),
            },
        ),
        Mistake(
            "Return a tensor like x, not a list or a number.",
            when=has_no_tensor,
            shown_by={"returns a list": edit("return total", "return total.tolist()")},
        ),
        Mistake(
            "The sums are right, but x was changed: += and add_ work in place. Add into a copy "
            "(x.clone()), or write x + before.",
            when=changes_only_x,
            shown_by={"adds into x": edit("total = x.clone()", "total = x")},
        ),
        Mistake(
            "A rank received numbers that were written into the tensor after the sender's "
            "function had returned: wait for the isend before you return.",
            when=_sent_too_late,
            shown_by={
                "does not wait for its isend": edit(
                    "dist.send(total, dst=rank + 1)", "keep.append(dist.isend(total, rank + 1))"
                ),
            },
        ),
        Mistake(
            "Each rank sends its own x. It should send the sum so far.",
            when=gives(lambda xs, r: xs[r] + xs[r - 1] if r else xs[0]),
            shown_by={"passes on its own tensor": edit("send(total,", "send(x,")},
        ),
        Mistake(
            "Rank 0's tensor travels along the chain unchanged: add your own x before you send.",
            when=gives(lambda xs, r: xs[0]),
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
            "Your own x is missing: each rank returns what it received plus its own x.",
            when=lambda *found: (
                gives(lambda xs, r: _sum_to(xs, r - 1) if r else xs[0])(*found)
                or gives(lambda xs, r: _sum_to(xs, r) - xs[r])(*found)
            ),
            shown_by={
                "leaves its own x out, on rank 0 too": body("""
                    total = torch.zeros_like(x)
                    if rank > 0:
                        dist.recv(total, src=rank - 1)
                    if rank < world_size - 1:
                        dist.send(total + x, rank + 1)
                    return total
                """),
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
            "Every rank returns its own x: the sum that it received is not in the result. Return "
            "the sum; if you use irecv, wait for it before you add.",
            when=_receives_in_vain,
            shown_by={
                "returns what it brought": edit("return total", "return x"),
                "does not wait for its irecv": edit(
                    """
                    before = torch.empty_like(x)
                    dist.recv(before, src=rank - 1)
                    """,
                    """
                    before = torch.zeros_like(x)
                    keep.append(dist.irecv(before, src=rank - 1))
                    """,
                ),
            },
        ),
        Mistake(
            "The sum runs in the wrong direction: rank r has the sum of the x of ranks r and "
            "above. Receive from rank - 1 and send to rank + 1.",
            when=gives(lambda xs, r: torch.stack(list(xs[r:])).sum(0, dtype=xs[0].dtype)),
            shown_by={
                "sums from the other end": body("""
                    total = x.clone()
                    if rank < world_size - 1:
                        before = torch.empty_like(x)
                        dist.recv(before, src=rank + 1)
                        total += before
                    if rank > 0:
                        dist.send(total, dst=rank - 1)
                    return total
                """),
            },
        ),
        Mistake(
            "The sums are right, but some ranks send several messages. Each rank needs only the "
            "sum of the rank before it, which already contains all earlier ones.",
            missed="messages sent",
            shown_by={
                "sends its tensor to all that come later": body("""
                    total = x.clone()
                    other = torch.empty_like(x)
                    for source in range(rank):
                        dist.recv(other, source)
                        total += other
                    for target in range(rank + 1, world_size):
                        dist.send(x, target)
                    return total
                """),
            },
        ),
    ),
    also_wrong={
        "writes the number of ranks": Wrong(edit("world_size - 1", "3"), says="one size"),
        "asks everybody": Wrong(
            body("""
                everyone = [torch.empty_like(x) for _ in range(world_size)]
                dist.all_gather(everyone, x)
                return sum(everyone[: rank + 1])
            """),
            says="forbidden: all_gather",
        ),
    },
    another=body("""
        rows = x.new_zeros(world_size, *x.shape)  # one message with the x of all before
        works = []
        if rank != 0:
            dist.irecv(rows, src=rank - 1).wait()
        rows[rank] = x
        if rank + 1 != world_size:
            works.append(dist.isend(rows, dst=rank + 1))
        for work in works:
            work.wait()
        return rows.sum(0)  # of int32 it is int64
    """),
    hints=(
        "Rank r does three things: receive from rank r - 1, add, send to rank r + 1. The first "
        "and the last rank each leave one of them out.",
        "Start with a copy of x. Every rank except the first receives the sum so far into a "
        "buffer like x and adds it. Every rank except the last then sends its own sum.",
        "Write it down for three ranks that bring 1, 2 and 3: what does rank 1 receive, send and "
        "return? Then find the condition for each of the two calls.",
    ),
)
