"""Exercise 05-2: use the store as a shared counter: each rank draws the next ticket in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake, Wrong
from .shared_store import shared_store


class _Counted:
    """A store that counts the calls that are made on it."""

    def __init__(self, store: dist.Store) -> None:
        self.store = store
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.store, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return attribute(*args, **kwargs)

        return call


def trial(answer: Callable[[Any], int], here: Here) -> list[Any]:
    """Take two tickets, the last rank first, then the first rank first; count calls."""
    rank, world_size = here.rank, here.world_size
    with shared_store(rank, world_size) as store:
        turns = dist.PrefixStore("labkit turns", store)
        counted = _Counted(store)
        tickets = []
        for place in (world_size - 1 - rank, world_size + rank):
            if place:
                turns.wait([str(place)])
            try:
                tickets.append(answer(counted))
            finally:
                turns.set(str(place + 1), "")
        return [*tickets, counted.calls]


def expected(world_size: int) -> list[list[int]]:
    """Count on, in the order in which the ranks came; two trips to the store."""
    return [[world_size - 1 - rank, world_size + rank, 2] for rank in range(world_size)]


EXERCISE = Exercise(
    id="05-2",
    title="Draw a ticket",
    answer="take_ticket",
    trial=trial,
    expected=expected,
    forbids=("get_rank", "all_reduce", "all_gather", "all_gather_object", "barrier"),
    mistakes=(
        Mistake(
            "You set what you had read: between the two calls another rank can read the same "
            "number. add does both at once.",
            when=lambda yours, expected, n: any(isinstance(v, list) and v[-1] > 2 for v in yours),
            shown_by={
                "reads, then writes": edit(
                    'return store.add("tickets", 1) - 1',
                    """
                    if not store.check(["tickets"]):
                        store.set("tickets", "0")
                    ticket = int(store.get("tickets"))
                    store.set("tickets", str(ticket + 1))
                    return ticket
                    """,
                ),
            },
        ),
        Mistake(
            "You wait for a key that nobody has set yet. add begins at 0 by itself.",
            raises=r"^DistStoreError: wait timeout",
            shown_by={
                "reads a key that is not there": edit(
                    'return store.add("tickets", 1) - 1',
                    """
                    ticket = int(store.get("tickets"))
                    store.set("tickets", str(ticket + 1))
                    return ticket
                    """,
                ),
            },
        ),
        Mistake(
            "Your tickets begin at 1: add returns the number after the addition.",
            when=lambda yours, expected, n: (
                [v[:2] for v in yours] == [[e[0] + 1, e[1] + 1] for e in expected]
            ),
            shown_by={"begins at one": body('return store.add("tickets", 1)')},
        ),
        Mistake(
            "Every rank gets its own rank, whenever it comes: the tickets have to be dealt by "
            "the store.",
            when=lambda yours, expected, n: all(v[0] == r for r, v in enumerate(yours)) and n > 1,
            shown_by={"takes its rank": body("return rank")},
        ),
        Mistake(
            "Ranks get equal tickets: all of them have to count with one key.",
            when=lambda yours, expected, n: len({v[0] for v in yours}) < n,
            shown_by={"counts for itself": edit('"tickets"', 'f"tickets of {rank}"')},
        ),
    ),
    also_wrong={
        "asks for its rank": Wrong(body("return dist.get_rank()"), says="forbidden: get_rank"),
    },
    another=body("""
        already_taken = store.add("number", 1)
        return already_taken - 1
    """),
    hints=(
        "One call of the store reads a counter, adds to it and writes it, all in one go.",
        "store.add(key, 1) returns the number after the addition. What was it before?",
        'One line is enough: return store.add("tickets", 1) - 1.',
    ),
)
