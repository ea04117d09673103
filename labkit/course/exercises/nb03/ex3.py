"""Exercise 03-3: write a step of all-gather in a ring: pass on the chunk that is finished."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...answers import body
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from ...mistakes import would_give
from .ring import (
    COLLECTIVES,
    EXCHANGE,
    IN_PLACE,
    ITEM,
    SENDS_BEFORE,
    SENDS_FIRST,
    cut,
    on_some_rank,
    play_ring,
)


def _finished(rank: int, n: int) -> torch.Tensor:
    """Return what a rank holds after reduce-scatter, with -1 where a chunk is not finished."""
    x = torch.full((n,), -1)
    own = (rank + 1) % n
    x[own] = 10 * (own + 1)
    return x


def trial(answer: Callable[..., Any], here: Here) -> torch.Tensor:
    n = here.world_size
    x = _finished(here.rank, n).to(here.device)
    chunks = cut(x, n)
    for step in range(n - 1):
        answer(chunks, step)
    return x


def expected(n: int) -> list[torch.Tensor]:
    return [torch.tensor([10 * (i + 1) for i in range(n)])] * n


EXERCISE = Exercise(
    id="03-3",
    title="One step of all-gather",
    answer="all_gather_step",
    setup=EXCHANGE,
    trial=trial,
    expected=expected,
    forbids=COLLECTIVES,
    goals=(
        Goal("messages sent", exactly=lambda n: n - 1),
        Goal("bytes sent", most=lambda n: (n - 1) * ITEM),
    ),
    mistakes=(
        Mistake(
            SENDS_FIRST,
            stuck=SENDS_BEFORE,
            shown_by={
                "sends before it receives": body("""
                    dist.send(chunks[(rank + 1 - step) % n], right)
                    dist.recv(chunks[(rank - step) % n], left)
                """),
            },
        ),
        Mistake(
            IN_PLACE,
            when=would_give(lambda n: [_finished(r, n) for r in range(n)]),
            shown_by={
                "a new tensor in the list": body("""
                    incoming = torch.empty_like(chunks[rank])
                    exchange(chunks[(rank + 1 - step) % n], incoming)
                    chunks[(rank - step) % n] = incoming
                """),
            },
        ),
        Mistake(
            "You add what comes in. A finished chunk has everybody's part already: it replaces "
            "yours.",
            when=would_give(
                play_ring(_finished, lambda r, k, n: r + 1 - k, lambda r, k, n: r - k, add=True)
            ),
            shown_by={
                "adds": body("""
                    mine = chunks[(rank - step) % n]
                    incoming = torch.empty_like(mine)
                    exchange(chunks[(rank + 1 - step) % n], incoming)
                    mine += incoming
                """),
            },
        ),
        Mistake(
            "In step 0 you send chunk rank, which is not finished (-1 in this test). The finished "
            "one on rank r is chunk r + 1.",
            when=would_give(
                play_ring(_finished, lambda r, k, n: r - k, lambda r, k, n: r - k - 1, add=False)
            ),
            shown_by={
                "begins with an unfinished chunk": body(
                    "exchange(chunks[(rank - step) % n], chunks[(rank - step - 1) % n])"
                )
            },
        ),
        Mistake(
            "You send your own finished chunk in every step. From step 1 on, send on the one that "
            "has just come in.",
            when=would_give(
                play_ring(_finished, lambda r, k, n: r + 1, lambda r, k, n: r, add=False)
            ),
            shown_by={"its own chunk every time": body("exchange(chunks[right], chunks[rank])")},
        ),
        Mistake(
            "You count the chunks up, with + step. What you receive in one step you send in the "
            "next: rank + 1, then rank, rank - 1, …",
            when=would_give(
                play_ring(_finished, lambda r, k, n: r + 1 + k, lambda r, k, n: r + k, add=False)
            ),
            shown_by={
                "counts up": body(
                    "exchange(chunks[(rank + 1 + step) % n], chunks[(rank + step) % n])"
                )
            },
        ),
        Mistake(
            "Some chunks are still unfinished (-1): what you receive in step k belongs in chunk "
            "rank - k.",
            when=lambda yours, expected, n: on_some_rank(
                yours, lambda y: isinstance(y, torch.Tensor) and bool((y == -1).any())
            ),
            shown_by={
                "one place off": body(
                    "exchange(chunks[(rank + 1 - step) % n], chunks[(rank - step - 1) % n])"
                )
            },
        ),
    ),
    also_wrong={
        "calls the collective": Wrong(
            body("""
                if step == 0:
                    mine = chunks[right].clone()
                    pieces = [torch.empty_like(mine) for _ in range(n)]
                    dist.all_gather(pieces, mine)
                    for r in range(n):
                        chunks[(r + 1) % n].copy_(pieces[r])
            """),
            says="forbidden: all_gather",
        ),
    },
    another=body("""
        number = rank - step
        room = torch.empty_like(chunks[number])
        sending = dist.isend(chunks[(number + 1) % n], right)
        dist.recv(room, left)
        sending.wait()
        chunks[number].copy_(room)
    """),
    hints=(
        "It is the same walk as in reduce-scatter, one chunk farther on, and without the +.",
        "In step k send chunk rank + 1 - k, and receive chunk rank - k, modulo n. Nothing is "
        "added, so you can receive straight into the chunk.",
        "exchange(chunks[(rank + 1 - step) % n], chunks[(rank - step) % n])",
    ),
)
