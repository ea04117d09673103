"""Exercise 03-2: write a step of reduce-scatter in a ring: send a chunk, add what arrives to the
next."""

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
    play_ring,
    uneven,
)

#: Elements of the buffer: more than any chunk has.
ROOM = 7


def _even(rank: int, n: int) -> torch.Tensor:
    """Return one number per chunk: its digit says which chunk it is, the digit's place whose."""
    return torch.arange(1, n + 1) * 10**rank


def _uneven(rank: int, n: int) -> torch.Tensor:
    return (torch.arange(float(sum(uneven(n)))) - 2.0) * 4.0**rank


def _out(rank: int, step: int, n: int) -> int:
    return rank - step - 1


def _into(rank: int, step: int, n: int) -> int:
    return rank - step - 2


def trial(answer: Callable[..., Any], here: Here) -> list[Any]:
    """Take all steps, with equal chunks; if that was right, with unequal ones in a smaller ring."""
    n, m = here.world_size, here.world_size - 1
    x = _even(here.rank, n).to(here.device)
    _run(answer, cut(x, [1] * n), torch.full((ROOM,), -1, device=here.device))
    if here.rank >= m:
        return [x, None]
    if not x.cpu().equal(_play(_out, _into)(n)[here.rank]):
        return [x, NOT_TRIED]
    y = _uneven(here.rank, m).to(here.device)
    _run(answer, cut(y, uneven(m)), torch.full((ROOM,), -1.0, device=here.device))
    return [x, y]


def _run(answer: Callable[..., Any], chunks: list[torch.Tensor], buffer: torch.Tensor) -> None:
    for step in range(len(chunks) - 1):
        answer(chunks, step, buffer)


def _play(out: Chunk, into: Chunk, *, add: bool = True) -> Callable[[int], list[torch.Tensor]]:
    """Return each rank's tensor after all steps with equal chunks."""

    def play(n: int) -> list[torch.Tensor]:
        held: Held = [cut(_even(rank, n), [1] * n) for rank in range(n)]
        return play_ring(held, out, into, add=add)

    return play


def expected(n: int) -> list[list[Any]]:
    m = n - 1
    held: Held = [cut(_uneven(rank, m), uneven(m)) for rank in range(m)]
    smaller = play_ring(held, _out, _into, add=True)
    return [[x, smaller[r] if r < m else None] for r, x in enumerate(_play(_out, _into)(n))]


def labels(n: int) -> list[str]:
    return [f"x after all steps, n = {n}", f"unequal chunks, n = {n - 1}"]


def _gives(play: Callable[[int], list[torch.Tensor]]) -> When:
    """Return the predicate of a mistake that gives these tensors with equal chunks."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        first, wrong = [y[0] for y in yours], play(n)
        return near(first, wrong) and not near([e[0] for e in expected], wrong)

    return when


def most_bytes(n: int) -> int:
    """Return the bytes of the rank that sends most."""
    m = n - 1
    lengths = uneven(m)
    return (n - 1) * ITEM + (sum(lengths) - min(lengths, default=0)) * FLOAT


EXERCISE = Exercise(
    id="03-2",
    title="One step of reduce-scatter",
    answer="reduce_scatter_step",
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
            "You add the whole buffer, but a chunk is shorter: receive into the beginning of the "
            "buffer, cut to the length of the chunk that you add to.",
            raises=rf"RuntimeError: .*(?:tensor [ab] \({ROOM}\)|broadcast shape \[{ROOM}\])",
        ),
        Mistake(
            "Chunks may have different lengths, and what arrives is as long as the chunk that you "
            "add to, not as the one that you send: cut the buffer to that. (Gloo ends a process "
            "that receives more than its tensor can hold.)",
            raises=rf"RuntimeError: {UNEQUAL}|Died: signal 6",
        ),
        Mistake(
            IN_PLACE,
            when=_gives(lambda n: [_even(r, n) for r in range(n)]),
        ),
        Mistake(
            "What arrives replaces your chunk. In this half it is added to it: receive into the "
            "buffer, then +=.",
            when=_gives(_play(_out, _into, add=False)),
        ),
        Mistake(
            "Rank r ends with chunk r + 1: everything is shifted by one chunk. In step 0 rank r "
            "sends chunk r - 1 and adds to chunk r - 2.",
            when=_gives(_play(lambda r, k, n: r - k, lambda r, k, n: r - k - 1)),
        ),
        Mistake(
            "You send the same chunk in every step, so no sum gets farther than one rank. In the "
            "next step send the chunk that you have just added to.",
            when=_gives(_play(lambda r, k, n: r - 1, lambda r, k, n: r - 2)),
        ),
        Mistake(
            "You add to the chunk that you send. What arrives is the chunk that your left "
            "neighbour sends, one before yours: add it to your chunk of the same number.",
            when=_gives(_play(_out, _out)),
        ),
        Mistake(
            "The chunk numbers go up, with + step. Send the chunk that you have just added to: "
            "rank - 1, then rank - 2, rank - 3, …",
            when=_gives(_play(lambda r, k, n: r + k - 1, lambda r, k, n: r + k - 2)),
        ),
    ),
    hints=(
        "The chunk that you add to in one step is the one that you send in the next.",
        "Find the two numbers for step 0 first, then let both count down with step, modulo n. "
        "How long is the chunk that arrives?",
        "You send chunk (rank - step - 1) % n and add to the one before it. Cut the buffer to the "
        "length of that one, receive into it, then add in place.",
    ),
)
