"""Exercise 11-4: write a linear layer that is cut by its inputs, and add its bias once.

All numbers are small integers, so that sums are exact in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from ...mistakes import When, would_give

#: Rows, outputs, and inputs on each rank.
ROWS, OUT, EACH = 2, 4, 3


def _layer(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x, w and bias of the whole layer: small integers, and a bias that stands out."""
    x = torch.arange(1.0, ROWS * EACH * n + 1).view(ROWS, EACH * n)
    w = (torch.arange(OUT * EACH * n) % 5 - 1.0).view(OUT, EACH * n)
    return x, w, 1000 * torch.arange(1.0, OUT + 1)


def _share(n: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, w, _ = _layer(n)
    return x.chunk(n, dim=1)[rank], w.chunk(n, dim=1)[rank]


def trial(answer: Callable[..., Any], here: Here) -> Any:
    """Give each rank its columns."""
    x, w = _share(here.world_size, here.rank)
    return answer(x.to(here.device), w.to(here.device), _layer(here.world_size)[2].to(here.device))


def expected(n: int) -> list[torch.Tensor]:
    """Compute the whole layer in one process."""
    x, w, bias = _layer(n)
    return [x @ w.T + bias] * n


def _gives(wrong: Callable[[int, int], torch.Tensor]) -> When:
    """Return the predicate of what a mistake gives: ``wrong(rank, n)`` on each rank."""
    return would_give(lambda n: [wrong(rank, n) for rank in range(n)])


def _part(rank: int, n: int) -> torch.Tensor:
    x, w = _share(n, rank)
    return x @ w.T


def _sum(n: int) -> torch.Tensor:
    x, w, _ = _layer(n)
    return x @ w.T


EXERCISE = Exercise(
    id="11-4",
    title="A layer with a bias",
    answer="row_linear",
    trial=trial,
    expected=expected,
    goals=(Goal("collectives", exactly=lambda n: 1),),
    mistakes=(
        Mistake(
            "Each rank has a part of the sum, from its own inputs, plus the bias. The parts of "
            "all ranks have to be added up.",
            when=_gives(lambda r, n: _part(r, n) + _layer(n)[2]),
            shown_by={"no sum": body("return x @ w.T + bias")},
        ),
        Mistake(
            "The bias is in the result world_size times: each rank adds it before the parts are "
            "added up. Add it afterwards.",
            when=_gives(lambda r, n: _sum(n) + n * _layer(n)[2]),
            shown_by={
                "the bias of every rank": edit("x @ w.T", "x @ w.T + bias", "out + bias", "out")
            },
        ),
        Mistake(
            "The bias is missing: add it to the sum.",
            when=_gives(lambda r, n: _sum(n)),
            shown_by={"no bias": edit("out + bias", "out")},
        ),
        Mistake(
            "You average. Each rank has a part of the sum over the inputs, so the parts are "
            "added up.",
            when=_gives(lambda r, n: _sum(n) / n + _layer(n)[2]),
            shown_by={"the mean": edit("+ bias", "/ world_size + bias")},
        ),
        Mistake(
            "The shapes do not fit. w has one row per output, as in nn.Linear: multiply x by w.T.",
            raises=r"shapes cannot be multiplied",
            shown_by={"not transposed": edit("x @ w.T", "x @ w")},
        ),
    ),
    also_wrong={
        "gathers inputs and weights": Wrong(
            body("""
                xs = [torch.empty_like(x) for _ in range(world_size)]
                ws = [torch.empty_like(w) for _ in range(world_size)]
                dist.all_gather(xs, x.contiguous())
                dist.all_gather(ws, w.contiguous())
                return torch.cat(xs, dim=1) @ torch.cat(ws, dim=1).T + bias
            """),
            says="goal: collectives",
        ),
        "one collective a row": Wrong(
            edit(
                "dist.all_reduce(out)",
                """
                for row in out:
                    dist.all_reduce(row)
                """,
            ),
            says="goal: collectives",
        ),
    },
    another=body("""
        part = torch.nn.functional.linear(x, w, bias if rank == 0 else None)
        parts = [torch.empty_like(part) for _ in range(world_size)]
        dist.all_gather(parts, part)
        return sum(parts)
    """),
    hints=(
        "What can this rank compute alone? For every output, a part of the sum over the inputs.",
        "x @ w.T is this rank's part. all_reduce adds up the parts of all ranks, in place.",
        "all_reduce changes its tensor in place, so keep the part in a variable. When is the "
        "bias added, so that it counts once?",
    ),
)
