"""Exercise 23-1: use the store as a shared counter: each rank draws the next ticket in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from ...exercise import Exercise, Here, Mistake
from ...mistakes import every_rank, parts, some_rank
from .shared_store import shared_store


class _Counted:
    """A store that lists the calls that are made on it."""

    def __init__(self, store: dist.Store) -> None:
        self.store = store
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.store, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            return attribute(*args, **kwargs)

        return call


def trial(answer: Callable[[Any], int], here: Here) -> list[Any]:
    """Take two tickets, the last rank first, then the first rank first; list the calls."""
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
        return [*tickets, " ".join(counted.calls)]


def expected(world_size: int) -> list[list[Any]]:
    """Count on, in the order in which the ranks came; one call of the store per ticket."""
    return [[world_size - 1 - rank, world_size + rank, "add add"] for rank in range(world_size)]


EXERCISE = Exercise(
    id="23-1",
    title="Draw a ticket",
    answer="take_ticket",
    trial=trial,
    expected=expected,
    forbids=("get_rank", "all_reduce", "all_gather", "all_gather_object", "barrier"),
    entries=("first ticket", "second ticket", "calls of the store"),
    mistakes=(
        Mistake(
            "compare_set is safe, but you have to read first, and to try again if another rank was "
            "faster. add needs one call per ticket.",
            when=some_rank(lambda mine, its: "compare_set" in mine[2]),
        ),
        Mistake(
            "You read the number and then set it: between the two calls another rank can read the "
            "same number. add does both in one call.",
            when=some_rank(lambda mine, its: "set" in mine[2].split()),
        ),
        Mistake(
            "The tickets are right, but each takes more than one call of the store: what add "
            "returns is all that you need.",
            when=every_rank(lambda mine, its: mine[:2] == its[:2])
            & some_rank(lambda mine, its: "add" in mine[2]),
        ),
        Mistake(
            "You wait for a key that no rank has set yet. add starts at 0 by itself.",
            raises=r"^DistStoreError: wait timeout",
        ),
        Mistake(
            "The tickets are text or bytes. What add returns is a number already.",
            when=some_rank(lambda mine, its: isinstance(mine[0], str | bytes)),
        ),
        Mistake(
            "Your tickets start at 1: add returns the number after the addition.",
            when=every_rank(lambda mine, its: mine[:2] == [its[0] + 1, its[1] + 1]),
        ),
        Mistake(
            "Every rank gets its own rank as the ticket, whenever it comes: the store has to "
            "number the tickets.",
            when=lambda yours, expected, n: all(v[0] == r for r, v in enumerate(yours)) and n > 1,
        ),
        Mistake(
            "Several ranks get the same ticket: all of them have to count with one key, and each "
            "call adds 1.",
            when=lambda yours, expected, n: (
                len({v[0] for v in yours}) < n and None not in parts(yours, 0)
            ),
        ),
    ),
    hints=(
        "One store call reads a counter, adds to it and writes it, with no other call in between.",
        "store.add(key, 1) returns the number after the addition. What was it before?",
        "The first rank that calls add gets 1 from it, and its ticket is 0.",
    ),
)
