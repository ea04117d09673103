"""Exercise 01-1: pass a running sum along the chain of ranks, with one message per rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...exercise import COLLECTIVES, Exercise, Goal, Here, Mistake
from .messages import (
    ENTRIES,
    NO_TENSOR,
    OTHER_DTYPE,
    OVERWRITTEN,
    brought,
    changes_only_x,
    gives,
    simulation,
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


expected = simulation(_sum_to)


def _sent_too_late(yours: Any, expected: Any, world_size: int) -> bool:
    """Return whether an odd rank added what the trial had written into a sum that was being
    sent."""
    return any(
        yours[r][0] == [OVERWRITTEN + number for number in brought(r)[0].tolist()]
        for r in range(1, world_size, 2)
    )


def _receives_in_vain(yours: Any, expected: Any, world_size: int) -> bool:
    """Return whether each rank returned its own x, alone or with what the rank before it returned,
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
        ),
        Mistake(
            "The last rank receives from a rank that does not exist: the sum comes from the other "
            "side, from rank - 1.",
            raises=r"There is no rank \d+ in this group[\s\S]*recv\(",
        ),
        Mistake(
            "Rank 0 waits for a message, but there is no rank before it: rank 0 starts the chain "
            "and receives nothing.",
            raises=r"There is no rank -\d+ in this group",
            stuck=r"rank 0 waits in recv from",
        ),
        Mistake(
            "A rank waits for a sum that is never sent to it: every rank except the last sends to "
            "rank + 1.",
            stuck=r"waits? in recv from rank .*: a send of ranks? .*is missing",
        ),
        Mistake(
            "A rank sends to a rank that does not receive: every rank except rank 0 receives from "
            "rank - 1, and the last rank sends to nobody.",
            stuck=r"waits? in send to rank .*: a receive of ranks? .*is missing",
        ),
        OTHER_DTYPE,
        NO_TENSOR,
        Mistake(
            "The sums are right, but x was changed: += and add_ work in place. Add into a copy "
            "(x.clone()), or write x + before.",
            when=changes_only_x,
        ),
        Mistake(
            "A rank received numbers that were written into the tensor after the sender's "
            "function had returned: wait for the isend before you return.",
            when=_sent_too_late,
        ),
        Mistake(
            "Each rank sends its own x. It should send the sum so far.",
            when=gives(lambda xs, r: xs[r] + xs[r - 1] if r else xs[0]),
        ),
        Mistake(
            "Rank 0's tensor travels along the chain unchanged: add your own x before you send.",
            when=gives(lambda xs, r: xs[0]),
        ),
        Mistake(
            "Your own x is missing: each rank returns what it received plus its own x.",
            when=gives(lambda xs, r: _sum_to(xs, r - 1) if r else xs[0])
            | gives(lambda xs, r: _sum_to(xs, r) - xs[r]),
        ),
        Mistake(
            "Every rank returns its own x: the sum that it received is not in the result. Return "
            "the sum; if you use irecv, wait for it before you add.",
            when=_receives_in_vain,
        ),
        Mistake(
            "The sum runs in the wrong direction: rank r has the sum of the x of ranks r and "
            "above. Receive from rank - 1 and send to rank + 1.",
            when=gives(lambda xs, r: torch.stack(list(xs[r:])).sum(0, dtype=xs[0].dtype)),
        ),
        Mistake(
            "The sums are right, but some ranks send several messages. Each rank needs only the "
            "sum of the rank before it, which already contains all earlier ones.",
            missed="messages sent",
        ),
    ),
    hints=(
        "Rank r does three things: receive from rank r - 1, add, send to rank r + 1. The first "
        "and the last rank each leave one of them out.",
        "Start with a copy of x. Every rank except the first receives the sum so far into a "
        "buffer like x and adds it. Every rank except the last then sends its own sum.",
        "Write it down for three ranks that bring 1, 2 and 3: what does rank 1 receive, send and "
        "return? Then find the condition for each of the two calls.",
    ),
)
