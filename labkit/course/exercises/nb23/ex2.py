"""Exercise 23-2: build a barrier from a store: no rank goes on before all have come, three times
in a row."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from ...exercise import Exercise, Here, Mistake
from ...mistakes import every_rank, some_rank
from ...trial_tools import sleepless
from .shared_store import shared_store

#: How much later than the others one rank comes to a meeting, in seconds.
LATE_SECONDS = 0.3


def trial(answer: Callable[[dist.Store, str, int], Any], here: Here) -> list[Any]:
    """Meet three times, one rank being late each time and the last rank absent from the third
    meeting; say how many had come when this one went on."""
    rank, world_size = here.rank, here.world_size
    few = max(1, world_size - 1)
    with shared_store(rank, world_size) as store:
        arrivals = dist.PrefixStore("labkit arrivals", store)
        seen: list[Any] = []
        for name, late, count in (
            ("first", min(1, world_size - 1), world_size),
            ("second", world_size - 1, world_size),
            ("third", 0, few),
        ):
            if rank >= count:
                seen.append("absent")
                continue
            if rank == late:
                time.sleep(LATE_SECONDS)
            arrivals.add(name, 1)
            with sleepless():
                answer(store, name, count)
            seen.append(arrivals.add(name, 0))
        return seen


def expected(world_size: int) -> list[list[Any]]:
    """Everybody had come, every time."""
    few = max(1, world_size - 1)
    return [[world_size, world_size, few if rank < few else "absent"] for rank in range(world_size)]


EXERCISE = Exercise(
    id="23-2",
    title="Build a barrier",
    answer="meet",
    trial=trial,
    expected=expected,
    entries=("ranks at the first", "ranks at the second", "ranks at the third"),
    forbids=("barrier", "monitored_barrier", "all_reduce", "all_gather", "all_gather_object"),
    mistakes=(
        Mistake(
            "The third barrier never opens. One rank does not come to it: whoever gets `count`, "
            "the argument, from add(name, 1) sets the key, whichever rank that is.",
            raises=r"^DistStoreError: wait timeout.*third",
        ),
        Mistake(
            "A rank waited for a key until the store's timeout, and no rank had set it. The rank "
            "for which add returns `count` has to set it.",
            raises=r"^DistStoreError: wait timeout",
        ),
        Mistake(
            "The first barrier works, but the second finds the key of the first already set: put "
            "the barrier's name into the key.",
            when=every_rank(lambda mine, its: mine[0] == its[0])
            & some_rank(lambda mine, its: mine[1] != its[1]),
        ),
        Mistake(
            "Some ranks go on before all have come: the key that they wait for must not be set "
            "before the last rank has come, and a fixed sleep is no wait for it.",
            when=some_rank(lambda mine, its: mine[0] != its[0]),
        ),
    ),
    hints=(
        "Count the ranks that come, with add. The last one then knows that it is the last.",
        "Two keys: a counter, and one that only the last rank sets. All ranks wait for the second.",
        "add returns how many have come, so the last rank gets `count`. Both keys need the "
        "barrier's name in them, and they must not be the same.",
    ),
)
