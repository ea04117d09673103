"""Exercise 01-4: gather one row per rank on rank 0 with messages, whatever order they arrive in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from .messages import LATE_SECONDS, listed, numbers_of


def trial(answer: Callable[[torch.Tensor], torch.Tensor | None], here: Here) -> Any:
    """Collect on rank 0 from ranks that come in the opposite order: the last one first."""
    rank = here.rank
    if rank:
        time.sleep((here.world_size - 1 - rank) * LATE_SECONDS)
    return listed(answer(torch.tensor(numbers_of(rank), device=here.device)))


def expected(world_size: int) -> list[Any]:
    everyone = [numbers_of(rank) for rank in range(world_size)]
    return [everyone, *[None] * (world_size - 1)]


def _rows(yours: Sequence[Any]) -> list[Any]:
    """Return the rows that rank 0 has, none if it failed."""
    return yours[0] if isinstance(yours[0], list) else []


EXERCISE = Exercise(
    id="01-4",
    title="Gather with messages",
    answer="collect",
    trial=trial,
    expected=expected,
    forbids=(
        "gather",
        "all_gather",
        "all_gather_into_tensor",
        "gather_object",
        "all_gather_object",
        "all_to_all",
        "reduce",
        "all_reduce",
    ),
    goals=(Goal("messages sent", most=lambda n: 1),),
    mistakes=(
        Mistake(
            "Rank 0 sends to itself, which no receive matches: it already has its own x.",
            raises=r"Invalid destination rank: destination rank should not be the same",
            shown_by={
                "lets rank 0 send too": body("""
                    dist.send(x, dst=0)
                    if rank == 0:
                        rows = torch.empty(world_size, *x.shape, device=x.device)
                        for source in range(world_size):
                            dist.recv(rows[source], source)
                        return rows
                """),
            },
        ),
        Mistake(
            "The rows are in the order in which they arrived: recv returns the rank of the "
            "sender, which is the row that belongs to it.",
            when=lambda yours, expected, n: (
                n > 2
                and len(_rows(yours)) == n
                and _rows(yours) != expected[0]
                and sorted(_rows(yours)) == expected[0]
            ),
            shown_by={
                "keeps the order of arrival": body("""
                    if rank > 0:
                        dist.send(x, dst=0)
                        return None
                    rows = [x]
                    for _ in range(world_size - 1):
                        row = torch.empty_like(x)
                        dist.recv(row)
                        rows.append(row)
                    return torch.stack(rows)
                """),
            },
        ),
        Mistake(
            "Several rows are the same: you received into one tensor again and again. Give "
            "each row its own, or copy.",
            when=lambda yours, expected, n: (
                n > 2 and len(_rows(yours)) > 1 and _rows(yours)[1:-1] == _rows(yours)[2:]
            ),
            shown_by={
                "receives into one tensor": body("""
                    if rank > 0:
                        dist.send(x, dst=0)
                        return None
                    rows, row = [x], torch.empty_like(x)
                    for source in range(1, world_size):
                        dist.recv(row, source)
                        rows.append(row)
                    return torch.stack(rows)
                """),
            },
        ),
        Mistake(
            "Rank 0's own row is missing: nobody sends it, so write it yourself.",
            when=lambda yours, expected, n: (
                _rows(yours) != expected[0] and _rows(yours)[-(n - 1) :] == expected[0][1:]
            ),
            shown_by={
                "forgets rank 0's own row": edit(
                    """
                    rows = torch.empty(world_size, *x.shape, device=x.device)
                    rows[0] = x
                    """,
                    "rows = torch.zeros(world_size, *x.shape, device=x.device)",
                    "src=source",
                    "source",
                ),
            },
        ),
        Mistake(
            "Ranks other than 0 have to return None.",
            when=lambda yours, expected, n: any(v is not None for v in yours[1:]),
            shown_by={
                "returns the rows on every rank": body("""
                    rows = torch.zeros(world_size, *x.shape, device=x.device)
                    rows[rank] = x
                    if rank > 0:
                        dist.send(x, dst=0)
                    else:
                        for source in range(1, world_size):
                            dist.recv(rows[source], source)
                    return rows
                """),
            },
        ),
    ),
    also_wrong={
        "calls gather": Wrong(
            body("""
                rows = [torch.empty_like(x) for _ in range(world_size)] if rank == 0 else None
                dist.gather(x, rows, dst=0)
                return torch.stack(rows) if rank == 0 else None
            """),
            says="forbidden: gather",
        ),
        "sends each number in a message of its own": Wrong(
            edit(
                "dist.send(x, dst=0)",
                """
                for number in x:
                    dist.send(number, dst=0)
                """,
                "dist.recv(rows[source], src=source)",
                """
                for place in range(len(x)):
                    dist.recv(rows[source, place], source)
                """,
            ),
            says="goal: messages sent",
        ),
    },
    another=body("""
        if rank != 0:
            dist.send(x, dst=0)
            return None
        found = {0: x}
        for _ in range(world_size - 1):
            row = torch.empty_like(x)
            found[dist.recv(row)] = row
        return torch.stack([found[r] for r in range(world_size)])
    """),
    hints=(
        "Rank 0 makes room for n rows, writes its own, and receives n - 1 times. The others "
        "send once.",
        "Without a source, recv takes whoever comes first and returns its rank. Use it as the "
        "row, or name the sources one after the other.",
        "rows = torch.empty(world_size, *x.shape, device=x.device); rows[0] = x; then for r in "
        "range(1, world_size): dist.recv(rows[r], r).",
    ),
)
