"""Exercise 02-3: gather tensors of different length, with the collectives for equal ones."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...answers import body, edit
from ...compare import same
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from .samples import uneven


def trial(answer: Callable[[torch.Tensor], torch.Tensor], here: Here) -> torch.Tensor:
    """Gather tensors of unequal length."""
    return answer(uneven(here.rank).to(here.device))


def expected(world_size: int) -> list[torch.Tensor]:
    """Put all of them together in one process."""
    return [torch.cat([uneven(r) for r in range(world_size)])] * world_size


def _padded(n: int) -> torch.Tensor:
    rows = torch.zeros(n, n)
    for r in range(n):
        rows[r, : r + 1] = uneven(r)
    return rows


EXERCISE = Exercise(
    id="02-3",
    title="Gather tensors of unequal length",
    answer="gather_uneven",
    trial=trial,
    expected=expected,
    forbids=("all_gather_object",),
    goals=(Goal("collectives", most=lambda n: 2),),
    mistakes=(
        Mistake(
            "The padding is still there: cut each piece to the length that its rank had.",
            when=lambda yours, expected, n: same(yours, [_padded(n).flatten()] * n),
            shown_by={
                "leaves the padding": edit(
                    "return torch.cat([piece[:k] for piece, k in zip(pieces, lengths)])",
                    "return torch.cat(pieces)",
                )
            },
        ),
        Mistake(
            "Each rank cuts all pieces to its own length; every piece has a length of its own.",
            when=lambda yours, expected, n: same(
                yours, [_padded(n)[:, : r + 1].flatten() for r in range(n)]
            ),
            shown_by={
                "cuts to its own length": edit(
                    "return torch.cat([piece[:k] for piece, k in zip(pieces, lengths)])",
                    "return torch.cat([piece[: len(x)] for piece in pieces])",
                )
            },
        ),
        Mistake(
            "Each rank has its own numbers only.",
            when=lambda yours, expected, n: same(yours, [uneven(r) for r in range(n)]),
            shown_by={
                "returns what it brought": edit(
                    "return torch.cat([piece[:k] for piece, k in zip(pieces, lengths)])", "return x"
                )
            },
        ),
        Mistake(
            "An all_gather needs the same shape on every rank, and here each brings another "
            "length. Agree on the longest first, and fill up to it.",
            raises=r"Died: signal 6|invalid tensor size",
            stuck=r"Cause: They call all_gather\w* with different shapes",
            shown_by={
                "makes room as for its own": body("""
                    pieces = [torch.empty_like(x) for _ in range(world_size)]
                    dist.all_gather(pieces, x)
                    return torch.cat(pieces)
                """),
                "makes the right room, but brings its own shape": body("""
                    pieces = [torch.empty(r + 1, device=device) for r in range(world_size)]
                    dist.all_gather(pieces, x)
                    return torch.cat(pieces)
                """),
            },
        ),
    ),
    also_wrong={
        "lets objects do it": Wrong(
            body("""
                pieces = [None] * world_size
                dist.all_gather_object(pieces, x)
                return torch.cat(pieces)
            """),
            says="forbidden: all_gather_object",
        ),
    },
    another=body("""
        longest = torch.tensor(len(x), device=device)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        padded = torch.full((int(longest) + 1,), float("nan"), device=device)
        padded[: len(x)] = x
        everyone = torch.empty(world_size * len(padded), device=device)
        dist.all_gather_into_tensor(everyone, padded)
        return everyone[~everyone.isnan()]
    """),
    hints=(
        "An all_gather moves equal shapes only. Who knows how long the others' tensors are?",
        "First gather the lengths (one number a rank). Then fill up to the longest and gather.",
        "padded = torch.zeros(max(lengths), device=device); padded[: len(x)] = x; gather that, "
        "cut piece i to lengths[i], and torch.cat them.",
    ),
    seconds=30,
)
