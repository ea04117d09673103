"""Exercise 03-3: write a step of all-gather in a ring: pass on the chunk that is finished."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...exercise import COLLECTIVES, Exercise, Goal, Here, Mistake
from ...mistakes import When, near
from .ring import (
    EXCHANGE,
    FLOAT,
    IN_PLACE,
    ITEM,
    NOT_TRIED,
    OUTSIDE,
    SENDS_FIRST,
    UNEQUAL,
    Chunk,
    Held,
    cut,
    on_some_rank,
    play_ring,
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
    """Take all steps, with equal chunks; if that was right, with unequal ones in a smaller ring."""
    n, m = here.world_size, here.world_size - 1
    x = _even(here.rank, n).to(here.device)
    _run(answer, cut(x, [1] * n))
    if here.rank >= m:
        return [x, None]
    if not x.cpu().equal(_finished(n)):
        return [x, NOT_TRIED]
    y = _uneven(here.rank, m).to(here.device)
    _run(answer, cut(y, uneven(m)))
    return [x, y]


def _run(answer: Callable[..., Any], chunks: list[torch.Tensor]) -> None:
    for step in range(len(chunks) - 1):
        answer(chunks, step)


def _finished(n: int) -> torch.Tensor:
    return 10 * torch.arange(1, n + 1)


def expected(n: int) -> list[list[Any]]:
    m = n - 1
    parts = [cut(_uneven(rank, m), uneven(m))[rank] for rank in range(m)]
    smaller = torch.cat(parts) if parts else None
    return [[_finished(n), smaller if rank < m else None] for rank in range(n)]


def labels(n: int) -> list[str]:
    return [f"x after all steps, n = {n}", f"unequal chunks, n = {n - 1}"]


def _gives(out: Chunk, into: Chunk, *, add: bool = False) -> When:
    """Return the predicate of a mistake that is played through with equal chunks."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        held: Held = [cut(_even(rank, n), [1] * n) for rank in range(n)]
        wrong = play_ring(held, out, into, add=add)
        return near([y[0] for y in yours], wrong) and not near([e[0] for e in expected], wrong)

    return when


def most_bytes(n: int) -> int:
    """Return the bytes of the rank that sends most."""
    lengths = uneven(n - 1)
    return (n - 1) * ITEM + (sum(lengths) - min(lengths, default=0)) * FLOAT


EXERCISE = Exercise(
    id="03-3",
    title="One step of all-gather",
    answer="all_gather_step",
    setup=EXCHANGE,
    trial=trial,
    expected=expected,
    entries=labels,
    forbids=COLLECTIVES,
    goals=(
        Goal("messages sent", most=lambda n: (n - 1) + max(n - 2, 0)),
        Goal("bytes sent", most=most_bytes),
    ),
    mistakes=(
        SENDS_FIRST,
        OUTSIDE,
        Mistake(
            "Chunks may have different lengths, and what arrives is as long as the chunk that it "
            "replaces, not as the one that you send. (Gloo ends a process that receives more than "
            "its tensor can hold.)",
            raises=rf"RuntimeError: {UNEQUAL}|Died: signal 6",
        ),
        Mistake(
            IN_PLACE,
            when=lambda yours, expected, n: near(
                [y[0] for y in yours], [_even(r, n) for r in range(n)]
            ),
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
            when=lambda yours, expected, n: on_some_rank(yours, lambda y: bool((y[0] == -1).any())),
        ),
    ),
    hints=(
        "The pattern is that of reduce-scatter, one chunk farther on, and nothing is added.",
        "In step k every rank sends the chunk that arrived in step k - 1; in step 0 its own. What "
        "number does the chunk have that your left neighbour sends?",
        "Send chunk (rank - step) % n and receive straight into the chunk before it.",
    ),
)
