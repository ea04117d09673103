"""Exercise 05-3: build a barrier from a store: nobody goes on before all have come, twice in a
row."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch.distributed as dist

from ...answers import body, edit
from ...exercise import Exercise, Here, Mistake, Wrong
from .shared_store import shared_store

#: How much later than the others one rank comes to a meeting, in seconds.
LATE_SECONDS = 0.3


def trial(answer: Callable[[dist.Store, str, int], None], here: Here) -> list[int]:
    """Meet twice, one rank being late each time; say how many had come when this one went on."""
    world_size = here.world_size
    with shared_store(here.rank, world_size) as store:
        arrivals = dist.PrefixStore("labkit arrivals", store)
        seen = []
        for name, late in (("first", 0), ("second", world_size - 1)):
            if here.rank == late:
                time.sleep(LATE_SECONDS)
            arrivals.add(name, 1)
            answer(store, name, world_size)
            seen.append(arrivals.add(name, 0))
        return seen


def expected(world_size: int) -> list[list[int]]:
    """Everybody had come, both times."""
    return [[world_size, world_size]] * world_size


EXERCISE = Exercise(
    id="05-3",
    title="Build a barrier",
    answer="meet",
    trial=trial,
    expected=expected,
    forbids=("barrier", "monitored_barrier", "all_reduce", "all_gather", "all_gather_object"),
    mistakes=(
        Mistake(
            "Nobody opens the door: a rank waited for a key until the store's timeout. The "
            "rank whose add returns world_size has to set it.",
            raises=r"^DistStoreError: wait timeout",
            shown_by={"counts from zero": edit("== world_size", "- 1 == world_size")},
        ),
        Mistake(
            "The first meeting works, the second finds the door of the first one open: put "
            "the name of the meeting into the key.",
            when=lambda yours, expected, n: (
                all(v[0] == n for v in yours) and any(v[1] != n for v in yours)
            ),
            shown_by={
                "opens the door for ever": edit(
                    'name + " open",', '"open",', '[name + " open"]', '["open"]'
                )
            },
        ),
        Mistake(
            "Some ranks go on before everybody has come: a key to wait for must not be there "
            "before the last one sets it.",
            when=lambda yours, expected, n: any(v[0] != n for v in yours),
            shown_by={
                "waits for the counter itself": body("""
                    store.add(name, 1)
                    store.wait([name])
                """),
                "opens the door at once": body("""
                    store.add(name, 1)
                    store.set(name + " open", "")
                    store.wait([name + " open"])
                """),
            },
        ),
    ),
    also_wrong={
        "calls barrier": Wrong(
            body("""
                store.add(name, 1)
                dist.barrier()
            """),
            says="forbidden: barrier",
        ),
    },
    another=body("""
        import time

        store.add(name, 1)
        while store.add(name, 0) < world_size:
            time.sleep(0.01)
    """),
    hints=(
        "Count who comes, with add. The last one knows that it is the last.",
        "Two keys: a counter, and a door that only the last one sets. Everybody waits for the "
        "door.",
        'if store.add(name, 1) == world_size: store.set(name + " open", ""), and then, on '
        'every rank, store.wait([name + " open"]).',
    ),
)
