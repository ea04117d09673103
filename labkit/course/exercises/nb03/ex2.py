"""Exercise 03-2: write a step of reduce-scatter in a ring: send a chunk, add what arrives to the
next."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ...exercise import COLLECTIVES, Exercise, Here, Mistake
from ...mistakes import Predicate
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
    def run(chunks: list[torch.Tensor]) -> None:
        buffer = chunks[0].new_full((ROOM,), -1)
        for step in range(len(chunks) - 1):
            answer(chunks, step, buffer)

    return try_steps(run, here, _even, _uneven, _right)


def _right(n: int) -> list[torch.Tensor]:
    return _simulation(n, _out, _into)


def _simulation(n: int, out: Chunk, into: Chunk, *, add: bool = True) -> list[torch.Tensor]:
    """Return each rank's tensor after all steps with equal chunks."""
    return play_ring([cut(_even(rank, n), [1] * n) for rank in range(n)], out, into, add=add)


def expected(n: int) -> list[list[Any]]:
    m = n - 1
    held = [cut(_uneven(rank, m), uneven(m)) for rank in range(m)]
    smaller = [*play_ring(held, _out, _into, add=True), None]
    return [[x, y] for x, y in zip(_right(n), smaller, strict=True)]


def _gives(out: Chunk, into: Chunk, *, add: bool = True) -> Predicate:
    """Return the predicate of a mistake that is simulated with equal chunks."""
    return first_is(lambda n: _simulation(n, out, into, add=add))


def _one_of(out: Chunk | None, into: Chunk | None) -> Predicate:
    """Return the predicate of a mistake in one of the two numbers, the one that is None: it is the
    rank's, plus or minus the step or not, plus a constant."""

    def holds(yours: Any, expected: Any, n: int) -> bool:
        chunks: list[Chunk] = [
            partial(_moving, direction, offset) for direction in (-1, 0, 1) for offset in range(n)
        ]
        return any(_gives(out or one, into or one)(yours, expected, n) for one in chunks)

    return Predicate(holds)


def _moving(direction: int, offset: int, rank: int, step: int, n: int) -> int:
    return rank + direction * step + offset


EXERCISE = Exercise(
    id="03-2",
    title="One step of reduce-scatter",
    answer="reduce_scatter_step",
    setup=EXCHANGE,
    trial=trial,
    expected=expected,
    entries=step_labels,
    forbids=COLLECTIVES,
    goals=STEP_GOALS,
    mistakes=(
        SENDS_FIRST,
        OUTSIDE,
        Mistake(
            "You add the whole buffer, but a chunk is shorter: receive into the beginning of the "
            "buffer, cut to the length of the chunk that you add to.",
            raises=rf"RuntimeError: .*(?:tensor [ab] \({ROOM}\)|broadcast shape \[{ROOM}\])",
        ),
        too_small(
            "it is too short: chunks may differ in length, and what arrives is as long as the "
            "chunk that you add to, not as the one that you send",
            rf"RuntimeError: {UNEQUAL}",
        ),
        Mistake(
            IN_PLACE,
            when=first_is(lambda n: [_even(r, n) for r in range(n)]),
        ),
        Mistake(
            "What arrives replaces your chunk. In this half it is added to it: receive into the "
            "buffer, then +=.",
            when=_gives(_out, _into, add=False),
        ),
        Mistake(
            "Rank r ends with chunk r + 1: everything is shifted by one chunk. In step 0 rank r "
            "sends chunk r - 1 and adds to chunk r - 2.",
            when=_gives(lambda r, k, n: r - k, lambda r, k, n: r - k - 1),
        ),
        Mistake(
            "You send the same chunk in every step, so no sum gets farther than one rank. In the "
            "next step send the chunk that you have just added to.",
            when=_gives(lambda r, k, n: r - 1, lambda r, k, n: r - 2),
        ),
        Mistake(
            "You add to the chunk that you send. What arrives is the chunk that your left "
            "neighbour sends, one before yours: add it to your chunk of the same number.",
            when=_gives(_out, _out),
        ),
        Mistake(
            "The chunk numbers go up, with + step. Send the chunk that you have just added to: "
            "rank - 1, then rank - 2, rank - 3, …",
            when=_gives(lambda r, k, n: r + k - 1, lambda r, k, n: r + k - 2),
        ),
        Mistake(
            "You send the right chunks, but do not always add to the chunk that arrives. Your left "
            "neighbour sends the one before yours: if you send chunk rank - step - 1, add to chunk "
            "rank - step - 2, which is another one in each step.",
            when=_one_of(_out, None),
        ),
        Mistake(
            "You do not always send the chunk that you added to in the step before: its sum stays "
            "behind, and another one goes on. If you add to chunk rank - step - 2, send the one "
            "after it.",
            when=_one_of(None, _into),
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
