"""Let ranks begin together, and compare the clocks of their hosts, through the group's store.

Ranks on one host share a clock. Every rank on another host asks the first rank for the time,
several times: the answer was given at some moment between question and reply, so half the shortest
round trip bounds the error (Mills, RFC 5905, "Network Time Protocol", section 8).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from ...base import times

#: How often a rank asks for the time.
EXCHANGES = 10


def align(
    store: Any, key: str, rank: int, hosts: Mapping[int, str], now: Callable[[], int] = time.time_ns
) -> tuple[int, int]:
    """Compare this rank's clock with the first rank's; every rank in ``hosts`` must call it.

    Parameters
    ----------
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
    first, *others = sorted(hosts)
    far = [other for other in others if hosts[other] != hosts[first]]
    best = (0, 0)
    for asking in far if rank == first else [rank] if rank in far else []:
        for i in range(EXCHANGES):
            name = f"{key}/clock/{asking}/{i}"
            if rank == first:
                _get(store, f"{name}/asked")
                store.set(f"{name}/answer", str(now()))
                continue
            before = now()
            store.set(f"{name}/asked", "")
            answer = int(_get(store, f"{name}/answer"))
            after = now()
            error = (after - before) // 2
            if i == 0 or error < best[1]:
                best = answer - (before + after) // 2, error
    return best


def meet(store: Any, key: str, count: int) -> None:
    """Wait until ``count`` ranks have called this, so that they begin together.

    Raises
    ------
    RuntimeError
        (torch's DistStoreError) If not all have come within ``times.CLOCKS_COMPARED``.
    """
    if store.add(f"{key}/here", 1) == count:
        store.set(f"{key}/go", "")
    _get(store, f"{key}/go")


def _get(store: Any, key: str) -> str:
    store.wait([key], timedelta(seconds=times.CLOCKS_COMPARED.seconds()))
    return str(store.get(key).decode())
