"""Exercise 03-4: put both halves together to an all-reduce that sends 2(n - 1)/n of the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from .ring import COLLECTIVES, EXCHANGE, ITEM, on_some_rank

#: What 03-2 and 03-3 have made.
HALVES = """
def reduce_scatter_step(chunks, step, room):
    mine = chunks[(rank - step - 1) % n]
    incoming = room[: len(mine)]
    exchange(chunks[(rank - step) % n], incoming)
    mine += incoming


def all_gather_step(chunks, step):
    exchange(chunks[(rank + 1 - step) % n], chunks[(rank - step) % n])
"""
#: Side of the matrix that 03-4 adds up: nine numbers, which neither 2, 4 nor 8 divides.
SIDE = 3


def _factors() -> torch.Tensor:
    """Return a matrix of 1 to 9, so that a chunk in the wrong place is noticed."""
    return torch.arange(1, SIDE * SIDE + 1).view(SIDE, SIDE)


def trial(answer: Callable[..., Any], here: Here) -> list[int]:
    """Add up a matrix whose sum is 11…1 times the factors; return the numbers before them."""
    factors = _factors().to(here.device)
    x = 10**here.rank * factors
    answer(x)
    return sorted((x // factors).unique().tolist())


def expected(n: int) -> list[list[int]]:
    return [[sum(10**r for r in range(n))]] * n


def most_bytes(n: int) -> int:
    """Return what the largest sender needs: all chunks but one (the smallest), twice."""
    size = SIDE * SIDE
    return 2 * (size - size // n) * ITEM


def _half_done(yours: Any, expected: Any, n: int) -> bool:
    partial = [[sum(10 ** ((r - k) % n) for k in range(m + 1)) for m in range(n)] for r in range(n)]
    return list(yours) == [sorted(set(sums)) for sums in partial]


EXERCISE = Exercise(
    id="03-4",
    title="The whole ring",
    answer="ring_all_reduce",
    setup=EXCHANGE + HALVES,
    trial=trial,
    expected=expected,
    forbids=COLLECTIVES,
    goals=(
        Goal("messages sent", exactly=lambda n: 2 * (n - 1)),
        Goal("bytes sent", most=most_bytes),
    ),
    mistakes=(
        Mistake(
            "torch.chunk may make fewer chunks than you ask for; nine numbers for four ranks "
            "become three chunks of three. tensor_split makes exactly n.",
            raises=r"(?s)^IndexError: list index out of range.*chunks\[",
            shown_by={
                "torch.chunk": edit(
                    """
                    chunks = list(x.view(-1).tensor_split(n))
                    if room is None:
                        room = torch.empty_like(chunks[0])  # none is longer than the first
                    """,
                    """
                    chunks = list(x.view(-1).chunk(n))
                    room = torch.empty_like(chunks[0])
                    """,
                ),
            },
        ),
        Mistake(
            "x is as it was before: the sum has to be in x itself. view and tensor_split share "
            "x's memory; clone, and a new tensor that you return, do not.",
            when=lambda yours, expected, n: list(yours) == [[10**r] for r in range(n)],
            shown_by={
                "works on a copy": body("""
                    x = x.clone()
                    chunks = list(x.view(-1).tensor_split(n))
                    room = torch.empty_like(chunks[0])
                    for step in range(n - 1):
                        reduce_scatter_step(chunks, step, room)
                    for step in range(n - 1):
                        all_gather_step(chunks, step)
                    return x
                """),
            },
        ),
        Mistake(
            "One chunk on each rank is finished and the others are partial sums: this is "
            "reduce-scatter. The all-gather is missing.",
            when=_half_done,
            shown_by={
                "only the first half": edit(
                    """
                    if room is None:
                        room = torch.empty_like(chunks[0])  # none is longer than the first
                    """,
                    "room = torch.empty_like(chunks[0])",
                    """
                    for step in range(n - 1):
                        all_gather_step(chunks, step)
                    """,
                    "",
                ),
            },
        ),
        Mistake(
            "The sum is right, but you send too much: cut x.view(-1) into chunks, not the rows of "
            "x, of which three cannot be shared among four ranks.",
            missed="bytes sent",
            shown_by={
                "cuts rows": edit(
                    """
                    chunks = list(x.view(-1).tensor_split(n))
                    if room is None:
                        room = torch.empty_like(chunks[0])  # none is longer than the first
                    """,
                    """
                    chunks = list(x.tensor_split(n))
                    room = torch.empty_like(chunks[0])
                    """,
                ),
            },
        ),
        Mistake(
            "There are partial sums left: both halves take n - 1 steps, all of the first before "
            "the second begins.",
            when=lambda yours, expected, n: on_some_rank(
                yours, lambda y: isinstance(y, list) and len(y) > 1
            ),
            shown_by={
                "one loop for both": body("""
                    chunks = list(x.view(-1).tensor_split(n))
                    room = torch.empty_like(chunks[0])
                    for step in range(n - 1):
                        reduce_scatter_step(chunks, step, room)
                        all_gather_step(chunks, step)
                """),
            },
        ),
    ),
    also_wrong={
        "whole tensors": Wrong(
            body("""
                outgoing = x.clone()
                for _ in range(n - 1):
                    incoming = torch.empty_like(x)
                    exchange(outgoing, incoming)
                    x += incoming
                    outgoing = incoming
            """),
            says="goal: ",
        ),
        "calls the collective": Wrong(body("dist.all_reduce(x)"), says="forbidden: all_reduce"),
    },
    another=body("""
        row = x.flatten()
        chunks = list(row.tensor_split(n))
        room = torch.empty_like(chunks[0])
        for step in range(2 * (n - 1)):
            if step < n - 1:
                reduce_scatter_step(chunks, step, room)
            else:
                all_gather_step(chunks, step - (n - 1))
        x.copy_(row.view_as(x))
    """),
    hints=(
        "You have both halves. What is left is to cut x, and to take all their steps in order.",
        "Make x one row with x.view(-1), cut it with tensor_split(n) into a list, then two loops "
        "over range(n - 1), one after the other.",
        "chunks = list(x.view(-1).tensor_split(n)); room = torch.empty_like(chunks[0]); then for "
        "step in range(n - 1): reduce_scatter_step(chunks, step, room); then all_gather_step.",
    ),
)
