"""Exercise 03-2: write a step of reduce-scatter in a ring: send a chunk, add what comes in to
the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...answers import body, edit
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
    play_ring,
    power_of_ten,
)


def _start(rank: int, n: int) -> torch.Tensor:
    return torch.full((n,), 10**rank)


def trial(answer: Callable[..., Any], here: Here) -> torch.Tensor:
    n = here.world_size
    x = power_of_ten(here.rank, n).to(here.device)
    chunks = cut(x, n)
    room = power_of_ten(here.rank, 2).to(here.device)  # more room than a chunk needs
    for step in range(n - 1):
        answer(chunks, step, room)
    return x


def expected(n: int) -> list[torch.Tensor]:
    """Return each rank's tensor: chunk i on rank r has the numbers of the ranks i, i + 1, …, r."""
    return [
        torch.tensor([sum(10 ** ((i + k) % n) for k in range((r - i) % n + 1)) for i in range(n)])
        for r in range(n)
    ]


EXERCISE = Exercise(
    id="03-2",
    title="One step of reduce-scatter",
    answer="reduce_scatter_step",
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
                "sends before it receives": edit(
                    "exchange(chunks[(rank - step) % n], incoming)",
                    """
                    dist.send(chunks[(rank - step) % n], right)
                    dist.recv(incoming, left)
                    """,
                ),
            },
        ),
        Mistake(
            "You receive into the whole room, but a chunk is shorter: use room[: len(mine)].",
            raises=r"doesn't match the broadcast shape|must match the size of tensor",
            shown_by={
                "the whole room": body("""
                    mine = chunks[(rank - step - 1) % n]
                    exchange(chunks[(rank - step) % n], room)
                    mine += room
                """),
            },
        ),
        Mistake(
            IN_PLACE,
            when=would_give(lambda n: [_start(r, n) for r in range(n)]),
            shown_by={
                "a new tensor in the list": edit(
                    "mine +=", "chunks[(rank - step - 1) % n] = mine +"
                )
            },
        ),
        Mistake(
            "What comes in replaces your chunk. In this half it is added to it: receive into "
            "room, then +=.",
            when=would_give(
                play_ring(_start, lambda r, k, n: r - k, lambda r, k, n: r - k - 1, add=False)
            ),
            shown_by={
                "replaces instead of adding": body(
                    "exchange(chunks[(rank - step) % n], chunks[(rank - step - 1) % n])"
                )
            },
        ),
        Mistake(
            "You send the same chunk in every step, so no sum gets farther than one rank. In "
            "step k it is chunk rank - k.",
            when=would_give(play_ring(_start, lambda r, k, n: r, lambda r, k, n: r - 1, add=True)),
            shown_by={
                "the same chunk every time": edit(
                    "(rank - step - 1) % n", "left", "(rank - step) % n", "rank"
                )
            },
        ),
        Mistake(
            "You add to the chunk that you send. What comes in is your left neighbour's chunk "
            "(rank - 1) - step: add it to your chunk of the same number.",
            when=would_give(
                play_ring(_start, lambda r, k, n: r - k, lambda r, k, n: r - k, add=True)
            ),
            shown_by={
                "adds to what it sends": edit(
                    "step - 1", "step", "chunks[(rank - step) % n]", "mine"
                )
            },
        ),
        Mistake(
            "You count the chunks up, with rank + step. Send the one that you have just added to: "
            "rank, then rank - 1, rank - 2, …",
            when=would_give(
                play_ring(_start, lambda r, k, n: r + k, lambda r, k, n: r + k - 1, add=True)
            ),
            shown_by={"counts up": edit("- step -", "+ step -", "(rank - step)", "(rank + step)")},
        ),
    ),
    also_wrong={
        "calls the collective": Wrong(
            body("""
                mine = chunks[(rank + 1) % n]
                if step == 0:
                    for i in range(n):
                        dist.reduce(chunks[i], (i - 1) % n)
            """),
            says="forbidden: reduce",
        ),
    },
    another=body("""
        number = rank - step
        incoming = room[: chunks[number - 1].numel()]
        sending = dist.isend(chunks[number], right)
        receiving = dist.irecv(incoming, left)
        receiving.wait()
        sending.wait()
        chunks[number - 1].add_(incoming)
    """),
    hints=(
        "The chunk that you add to in one step is the one that you send in the next.",
        "Receive into as much of room as chunk (rank - step - 1) % n is long, while you send "
        "chunk (rank - step) % n; then add, in place.",
        "mine = chunks[(rank - step - 1) % n]; incoming = room[: len(mine)]; "
        "exchange(chunks[(rank - step) % n], incoming); mine += incoming",
    ),
)
