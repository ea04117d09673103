"""Exercise 03-3: write a step of all-gather in a ring: pass on the chunk that is finished."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import COLLECTIVES, Exercise, Here, Mistake
from ...mistakes import Predicate, some_rank
from .ring import (
    EXCHANGE,
    IN_PLACE,
    OUTSIDE,
    SENDS_FIRST,
    STEP_GOALS,
    UNEQUAL,
    Chunk,
    cut,
    first_is,
    play_ring,
    step_labels,
    too_small,
    try_steps,
    uneven,
)


def _even(rank: int, n: int) -> torch.Tensor:
    """Return one number per chunk, -1 where a chunk is not finished."""
    x = torch.full((n,), -1)
    x[rank] = 10 * (rank + 1)
    return x


def _uneven(rank: int, n: int) -> torch.Tensor:
    """Return chunks of unequal lengths, of another type, of which number ``rank`` is finished."""
    chunks = cut(torch.full((sum(uneven(n)),), -1.0), uneven(n))
    chunks[rank] = torch.arange(float(len(chunks[rank]))) - rank
    return torch.cat(chunks)


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    def run(chunks: list[torch.Tensor]) -> None:
        for step in range(len(chunks) - 1):
            answer(chunks, step)

    return try_steps(run, here, _even, _uneven, _finished)


def _finished(n: int) -> list[torch.Tensor]:
    return [10 * torch.arange(1, n + 1)] * n


def expected(n: int) -> list[list[Any]]:
    m = n - 1
    parts = [cut(_uneven(rank, m), uneven(m))[rank] for rank in range(m)]
    smaller = torch.cat(parts) if parts else None
    return [[x, smaller if rank < m else None] for rank, x in enumerate(_finished(n))]


def _gives(out: Chunk, into: Chunk, *, add: bool = False) -> Predicate:
    """Return the predicate of a mistake that is simulated with equal chunks."""
    return first_is(
        lambda n: play_ring([cut(_even(r, n), [1] * n) for r in range(n)], out, into, add=add)
    )


EXERCISE = Exercise(
    id="03-3",
    title="One step of all-gather",
    answer="all_gather_step",
    setup=EXCHANGE,
    trial=trial,
    expected=expected,
    entries=step_labels,
    forbids=COLLECTIVES,
    goals=STEP_GOALS,
    mistakes=(
        SENDS_FIRST,
        OUTSIDE,
        too_small(
            "it is too short: chunks may differ in length, and what arrives is as long as the "
            "chunk that it replaces, not as the one that you send",
            rf"RuntimeError: {UNEQUAL}",
        ),
        Mistake(
            IN_PLACE,
            when=first_is(lambda n: [_even(r, n) for r in range(n)]),
        ),
        Mistake(
            "You add what arrives. A finished chunk has every rank's part already: it replaces "
            "yours.",
            when=_gives(lambda r, k, n: r - k, lambda r, k, n: r - k - 1, add=True),
        ),
        Mistake(
            "In step 0 you send a chunk that is not finished (-1 in this test). On rank r the "
            "finished one is chunk r.",
            when=_gives(lambda r, k, n: r - k - 1, lambda r, k, n: r - k - 2),
        ),
        Mistake(
            "Only your own chunk and the first one that arrived are finished. From step 1 on, send "
            "on the one that arrived in the step before.",
            when=_gives(lambda r, k, n: r, lambda r, k, n: r - 1),
        ),
        Mistake(
            "The chunk numbers go up, with + step. Send in each step what arrived in the step "
            "before: rank, then rank - 1, rank - 2, …",
            when=_gives(lambda r, k, n: r + k, lambda r, k, n: r + k - 1),
        ),
        Mistake(
            "Some chunks are still unfinished (-1): put what arrives into the chunk of the same "
            "number as on the rank that sent it.",
            when=some_rank(lambda mine, its: bool((mine[0] == -1).any())),
        ),
    ),
    hints=(
        "The pattern is that of reduce-scatter, one chunk farther on, and nothing is added.",
        "In step k every rank sends the chunk that arrived in step k - 1; in step 0 its own. What "
        "number does the chunk have that your left neighbour sends?",
        "Send chunk (rank - step) % n and receive straight into the chunk before it.",
    ),
)
