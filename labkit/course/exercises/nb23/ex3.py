"""Exercise 23-3: wait for a key of a store with a time limit, and fall back to a default."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ....base import times
from ...exercise import Exercise, Here, Mistake
from ...mistakes import some_rank

#: In seconds: when a late key comes and how long to wait for it at most; how long to
#: wait for one that comes too late, and when that one comes.
SOON, PATIENT, IMPATIENT, TOO_LATE = 0.2, 10.0, 0.3, 2.0


def trial(answer: Callable[[dist.Store, str, float, str], str], here: Here) -> list[Any]:
    """Ask for a key that is there, one that comes soon, and one that comes too late; return whether
    the store is what it was, or what is not. Every rank has a store of its own."""
    limit = timedelta(seconds=times.TRIAL_STORE.seconds())
    store: Any = dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=limit
    )
    store.set("colour", "blå")
    found = [answer(store, "colour", PATIENT, "grey")]
    for key, comes, seconds in (("size", SOON, PATIENT), ("shape", TOO_LATE, IMPATIENT)):
        other = store.clone()  # a connection of its own: the answer's is busy while it waits
        timer = threading.Timer(comes, other.set, (key, f"the {key}"))
        timer.start()
        try:
            found.append(answer(store, key, seconds, "nothing"))
        finally:
            timer.cancel()
            timer.join()
    kept = True if store.timeout == limit else "another timeout"
    if store.check(["shape"]) and store.get("shape") == b"nothing":
        kept = "the default under the key"
    return [*found, kept]


def expected(world_size: int) -> list[list[Any]]:
    """Return the two values that come in time, and the default."""
    return [["blå", "the size", "nothing", True]] * world_size


EXERCISE = Exercise(
    id="23-3",
    title="Wait a while",
    answer="get_or",
    trial=trial,
    expected=expected,
    entries=(
        "a key that is there",
        "one that comes soon",
        "one that comes too late",
        "the store is as before",
    ),
    setup="from datetime import timedelta",
    mistakes=(
        Mistake(
            "str() of bytes keeps the b and the quotes of Python's notation: decode() gives the "
            "text.",
            when=some_rank(lambda mine, its: isinstance(mine[0], str) and mine[0][:2] == "b'"),
        ),
        Mistake(
            "The store returns bytes, but text is expected: decode them.",
            when=some_rank(lambda mine, its: any(isinstance(part, bytes) for part in mine[:3])),
        ),
        Mistake(
            "The key was set a moment later, well before `seconds` were over, and you did not wait "
            "for it: check looks only once, and wait takes a timedelta(seconds=…).",
            when=some_rank(lambda mine, its: mine[1] == "nothing"),
        ),
        Mistake(
            "You waited longer than `seconds`, until the key was set or the store's own timeout "
            "was over: pass `seconds` to wait, as a timedelta.",
            when=some_rank(lambda mine, its: mine[2] == "the shape"),
        ),
        Mistake(
            "The store's timeout has changed, for every later call too: pass the time to wait "
            "instead of calling set_timeout.",
            when=some_rank(lambda mine, its: mine[3] == "another timeout"),
        ),
        Mistake(
            "The default is in the store now, so every other rank that asks takes it for the "
            "value. Only return it.",
            when=some_rank(lambda mine, its: mine[3] == "the default under the key"),
        ),
        Mistake(
            "It raises the store's error when no rank sets the key: catch it and return default.",
            raises=r"^DistStoreError: wait timeout",
        ),
        Mistake(
            "wait does not take these arguments: the keys are a list, even if there is only one, "
            "and the time is a timedelta.",
            raises=r"wait\(\): incompatible function arguments",
        ),
    ),
    hints=(
        "Wait for the key first, with a limit, and read it afterwards.",
        "store.wait takes a list of keys and a timedelta, and raises dist.DistStoreError when "
        "the time is over.",
        "Put wait into a try block, and return the default in the except block. The code after "
        "it runs only if the key is there: read the value and decode it.",
    ),
)
