"""Exercise 01-4: gather one row per rank on rank 0 with messages, whatever order they arrive in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...exercise import COLLECTIVES, Exercise, Goal, Here, Mistake
from ...mistakes import Predicate
from .messages import (
    CHANGES_X,
    ENTRIES,
    LATE_SECONDS,
    brought,
    gives,
    has_no_tensor,
    has_other_dtype,
    simulation,
    try_cases,
)


def trial(answer: Callable[[torch.Tensor], Any], here: Here) -> list[Any] | None:
    """Collect on rank 0 from ranks that come in an order of their own: 3, 1, 2 of four.

    On the CPU, whose backend can also receive from any rank.
    """
    if here.rank:
        time.sleep(here.rank % (here.world_size - 1) * 2 * LATE_SECONDS)
    return try_cases(answer, here, _brought(here.rank))


def _brought(rank: int) -> list[torch.Tensor]:
    """Return what a rank brings to the one case: the messages of a second one could overtake those
    of the first where rank 0 receives from any rank."""
    return brought(rank)[1:]


expected = simulation(lambda xs, r: None if r else torch.stack(list(xs)), _brought)


def _rows(yours: Sequence[Any]) -> list[Any]:
    return yours[0][0] if isinstance(yours[0], list) and isinstance(yours[0][0], list) else []


def _own(n: int) -> list[Any]:
    """Return what each rank brings in the case."""
    return [_brought(rank)[0].tolist() for rank in range(n)]


def _in_order_of_arrival(yours: Any, expected: Any, n: int) -> bool:
    rows = _rows(yours)
    return rows != _own(n) and rows[:1] == _own(n)[:1] and sorted(rows) == sorted(_own(n))


def _same_rows(yours: Any, expected: Any, n: int) -> bool:
    rows = _rows(yours)[1:]
    return n > 2 and len(rows) == n - 1 and rows[0] in _own(n)[1:] and rows == rows[:1] * (n - 1)


def _lacks_its_own(yours: Any, expected: Any, n: int) -> bool:
    rows = _rows(yours)
    return rows[-(n - 1) :] == _own(n)[1:] and rows[: -(n - 1)] != _own(n)[:1]


def _too_early(yours: Any, expected: Any, n: int) -> bool:
    rows = _rows(yours)
    shapes = {torch.tensor(row).shape for row in [*rows, *_own(n)]}
    return len(rows) == n and len(shapes) == 1 and any(row not in _own(n) for row in rows)


def _on_rank_0(build: Callable[[list[torch.Tensor]], torch.Tensor]) -> Predicate:
    return gives(lambda xs, r: None if r else build(list(xs)), _brought)


EXERCISE = Exercise(
    id="01-4",
    title="Gather with messages",
    answer="collect",
    setup="keep = []",
    trial=trial,
    expected=expected,
    entries=ENTRIES[1:],
    forbids=COLLECTIVES,
    goals=(Goal("messages sent", most=lambda n: 1),),
    mistakes=(
        Mistake(
            "A rank sends to itself. Rank 0 has its own x already, and every other rank sends to "
            "rank 0.",
            raises=r"Invalid destination rank: destination rank should not be the same",
        ),
        Mistake(
            "Rank 0 waits for a message that is never sent: each of the n - 1 other ranks sends "
            "one, and rank 0 receives n - 1 times.",
            stuck=r"ranks? 0 waits? in recv",
            raises=r"Invalid source rank|Pair is not connected",
        ),
        Mistake(
            "A rank waits in its send to rank 0, which never receives the message: rank 0 has to "
            "receive n - 1 times.",
            stuck=r"waits? in send to rank 0",
        ),
        Mistake(
            "The dtype of the rows differs from that of x: pass dtype=x.dtype where you create "
            "them, or use torch.empty_like(x) for each row.",
            when=has_other_dtype,
            raises=r"Died: signal 6",
        ),
        Mistake(
            "Rank 0 has to return one tensor, not a list of tensors: torch.stack joins them.",
            when=has_no_tensor,
        ),
        Mistake(
            "Ranks other than 0 have to return None.",
            when=lambda yours, expected, n: any(v is not None for v in yours[1:]),
        ),
        CHANGES_X,
        Mistake(
            "Rank 0's own row comes last. Row r belongs to rank r, so it has to come first.",
            when=_on_rank_0(lambda xs: torch.stack([*xs[1:], xs[0]])),
        ),
        Mistake(
            "The rows are in the order of arrival. recv returns the sender's rank, which is the "
            "number of its row.",
            when=_in_order_of_arrival,
        ),
        Mistake(
            "The ranks' tensors are stacked along the wrong dimension: the new dimension has to "
            "be the first (dim=0), so that row r is the x of rank r.",
            when=_on_rank_0(lambda xs: torch.stack(xs, dim=1))
            | _on_rank_0(lambda xs: torch.stack(xs, dim=2)),
        ),
        Mistake(
            "The rows are flattened. Each row has the shape of x, so the result has the shape "
            "(world_size, *x.shape).",
            when=_on_rank_0(lambda xs: torch.stack([x.flatten() for x in xs])),
        ),
        Mistake(
            "The ranks' tensors are joined end to end in one dimension: torch.stack adds a new "
            "dimension, torch.cat does not.",
            when=_on_rank_0(torch.cat),
        ),
        Mistake(
            "The rows of the other ranks are all the same: every message was received into the "
            "same tensor. Use a separate tensor for each row, or copy after each recv.",
            when=_same_rows,
        ),
        Mistake(
            "Rank 0's own row is missing: no rank sends it, so write it yourself.",
            when=_lacks_its_own,
        ),
        Mistake(
            "A row holds numbers that no rank passed to collect: it was read before its message "
            "had arrived. Wait for every irecv.",
            when=_too_early,
        ),
        Mistake(
            "The rows are right, but some ranks send several messages: send the whole tensor in "
            "one.",
            missed="messages sent",
        ),
    ),
    hints=(
        "Rank 0 has its own row and receives n - 1 others. The other ranks send once.",
        "Without a source, recv takes the message that comes first and returns the sender's rank, "
        "which is the row's number. Or receive from one source after the other.",
        "recv can fill a row of a larger tensor, rows[source], as long as that tensor has the "
        "shape (world_size, *x.shape) and the dtype of x.",
    ),
)
