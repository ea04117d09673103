"""Let ranks begin together, and compare the clocks of their hosts, through the group's store.

Ranks on one host share a clock. Of every other host, one rank asks a rank of the first host for
the time, several times: the answer was given at some moment between question and reply, so half
the shortest round trip bounds the error (Mills, RFC 5905, "Network Time Protocol", section 8).
Every wait has a bound, and a rank that nobody answers goes on with its own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from ... import times

#: How often a host asks another for the time.
EXCHANGES = 10


def first_of_hosts(hosts: Mapping[int, str]) -> dict[int, str]:
    """Return the ranks that compare clocks, the reference first: one rank a host."""
    chosen: dict[str, int] = {}
    for rank in sorted(hosts):
        chosen.setdefault(hosts[rank], rank)
    return {rank: host for host, rank in chosen.items()}


def align(
    store: Any,
    key: str,
    rank: int,
    hosts: Mapping[int, str],
    now: Callable[[], int] = time.time_ns,
) -> tuple[int, int]:
    """Compare this rank's clock with the first rank's; every rank in ``hosts`` must call it.

    Parameters
    ----------
    store
        The group's store, or any with its methods.
    key
        A name that no other call has used.
    hosts
        rank -> its host, of all the ranks that take part.
    now
        This host's clock, in nanoseconds.

    Returns
    -------
    tuple
        What to add to this host's clock to have the first rank's, and how far off that may be;
        both in nanoseconds.
    """
    speakers = first_of_hosts(hosts)
    reference, *others = speakers
    if hosts[rank] == hosts[reference] and rank != reference:
        return 0, 0
    if rank == reference:
        for other in others:
            _answer(store, f"{key}/clock/{other}", now)
        return 0, 0
    speaker = next(r for r, host in speakers.items() if host == hosts[rank])
    result = f"{key}/clock/{speaker}/result"
    if rank == speaker:
        offset, error = _ask(store, f"{key}/clock/{speaker}", now)
        store.set(result, f"{offset} {error}")
        return offset, error
    told = store_get(store, result).split()
    return int(told[0]), int(told[1])


def _answer(store: Any, key: str, now: Callable[[], int]) -> None:
    for i in range(EXCHANGES):
        store_get(store, f"{key}/{i}/asked")
        store.set(f"{key}/{i}/told", str(now()))


def _ask(store: Any, key: str, now: Callable[[], int]) -> tuple[int, int]:
    best: tuple[int, int] | None = None
    for i in range(EXCHANGES):
        before = now()
        store.set(f"{key}/{i}/asked", "")
        told = int(store_get(store, f"{key}/{i}/told"))
        after = now()
        error = (after - before) // 2
        if best is None or error < best[1]:
            best = told - (before + after) // 2, error
    assert best is not None
    return best


def store_get(store: Any, key: str) -> str:
    """Return what a store has under a key, waiting for it up to ``times.CLOCKS_COMPARED``."""
    store.wait([key], timedelta(seconds=times.CLOCKS_COMPARED.seconds()))
    return str(store.get(key).decode())


def meet(store: Any, key: str, count: int) -> None:
    """Wait until ``count`` ranks have called this, so that they begin together.

    Raises
    ------
    RuntimeError
        (torch's DistStoreError) If not all have come within ``times.CLOCKS_COMPARED``.
    """
    if store.add(f"{key}/here", 1) == count:
        store.set(f"{key}/go", "")
    store_get(store, f"{key}/go")
