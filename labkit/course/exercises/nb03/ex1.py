"""Exercise 03-1: add up by passing whole tensors round the ring, n - 1 times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...answers import body, edit
from ...exercise import Exercise, Goal, Here, Mistake, Wrong
from ...mistakes import When, would_give
from .ring import COLLECTIVES, EXCHANGE, ITEM, SENDS_BEFORE, SENDS_FIRST, on_some_rank, power_of_ten

CHANGED = "x has changed"


def _nothing(yours: Sequence[Any], expected: Any, n: int) -> bool:
    return on_some_rank(yours, lambda y: y is None)


def trial(answer: Callable[..., Any], here: Here) -> Any:
    x = power_of_ten(here.rank, 2).to(here.device)
    total = answer(x)
    return total if bool((x == 10**here.rank).all()) else CHANGED


def expected(n: int) -> list[torch.Tensor]:
    return [torch.full((2,), sum(10**r for r in range(n)))] * n


def _naive(number: Callable[[int, int], int]) -> When:
    """Return the predicate of what a mistake gives: ``number(rank, n)`` on each rank."""
    return would_give(lambda n: [torch.full((2,), number(r, n)) for r in range(n)])


def _passes_on_totals(rank: int, n: int) -> int:
    totals = [10**r for r in range(n)]
    for _ in range(n - 1):
        totals = [totals[r] + totals[r - 1] for r in range(n)]
    return totals[rank]


EXERCISE = Exercise(
    id="03-1",
    title="The naive ring",
    answer="naive_ring",
    setup=EXCHANGE,
    trial=trial,
    expected=expected,
    forbids=COLLECTIVES,
    goals=(
        Goal("messages sent", exactly=lambda n: n - 1),
        Goal("bytes sent", most=lambda n: (n - 1) * 2 * ITEM),
    ),
    mistakes=(
        Mistake(
            SENDS_FIRST,
            stuck=SENDS_BEFORE,
            shown_by={
                "sends before it receives": edit(
                    "exchange(outgoing, incoming)",
                    """
                    dist.send(outgoing, right)
                    dist.recv(incoming, left)
                    """,
                ),
            },
        ),
        Mistake(
            "It returns nothing: end it with return total.",
            when=_nothing,
            shown_by={"returns nothing": edit("return total", "")},
        ),
        Mistake(
            "It changes x, which belongs to the caller: begin with a copy, total = x.clone().",
            when=lambda yours, expected, n: on_some_rank(yours, lambda y: isinstance(y, str)),
            shown_by={"changes x": edit("x.clone(), x", "x, x.clone()")},
        ),
        Mistake(
            "Only one neighbour's number is in the sum. A step passes a tensor one place on, and "
            "the farthest has n - 1 places to go: repeat the step.",
            when=_naive(lambda r, n: 10**r + 10 ** ((r - 1) % n)),
            shown_by={
                "adds one neighbour": body("""
                    incoming = torch.empty_like(x)
                    exchange(x, incoming)
                    return x + incoming
                """),
            },
        ),
        Mistake(
            "You send your own x in every step, so your neighbour adds it n - 1 times. Send on "
            "what has just come in.",
            when=_naive(lambda r, n: 10**r + (n - 1) * 10 ** ((r - 1) % n)),
            shown_by={
                "sends its own every time": body("""
                    total = x.clone()
                    incoming = torch.empty_like(x)
                    for _ in range(n - 1):
                        exchange(x, incoming)
                        total += incoming
                    return total
                """),
            },
        ),
        Mistake(
            "You pass on the sum so far, so ranks are counted several times (look at the digits). "
            "Send on what has just come in, and keep the sum to yourself.",
            when=_naive(_passes_on_totals),
            shown_by={
                "passes on the total": body("""
                    total = x.clone()
                    incoming = torch.empty_like(x)
                    for _ in range(n - 1):
                        exchange(total, incoming)
                        total += incoming
                    return total
                """),
            },
        ),
        Mistake(
            "One step too many: after n - 1 steps you have everybody's number, and the n-th "
            "brings back your own.",
            when=_naive(lambda r, n: sum(10**i for i in range(n)) + 10**r),
            shown_by={"one step too many": edit("range(n - 1)", "range(n)")},
        ),
        Mistake(
            "Your own number is missing: the sum begins with x, not with zero.",
            when=_naive(lambda r, n: sum(10**i for i in range(n)) - 10**r),
            shown_by={"begins with zero": edit("x.clone()", "torch.zeros_like(x)")},
        ),
    ),
    also_wrong={
        "calls the collective": Wrong(
            body("""
                total = x.clone()
                dist.all_reduce(total)
                return total
            """),
            says="forbidden: all_reduce",
        ),
    },
    another=body("""
        travelling, total = x.clone(), x.clone()
        for _ in range(n - 1):
            arrived = torch.empty_like(x)
            sending = dist.isend(travelling, right)
            dist.recv(arrived, left)
            sending.wait()
            travelling = arrived
            total = total + travelling
        return total
    """),
    hints=(
        "Keep two things apart: the sum so far, which stays here, and the tensor that travels.",
        "In each step send the travelling tensor, receive another one into a fresh tensor, add "
        "that one to the sum, and let it be the one that travels next.",
        "total, outgoing = x.clone(), x; then n - 1 times: incoming = torch.empty_like(x), "
        "exchange(outgoing, incoming), total += incoming, outgoing = incoming.",
    ),
)
