"""Give the ranks of a trial a store of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from ....base import times


@contextmanager
def shared_store(rank: int, world_size: int) -> Iterator[dist.Store]:
    """Give the ranks of a trial one new TCPStore, which rank 0 serves until all have left.

    Raises
    ------
    RuntimeError
        If the ranks are in no process group: it carries the number of the port.
    """
    if not dist.is_initialized():
        raise RuntimeError(
            "The ranks are in no process group: run the cell above that calls init_process_group."
        )
    limit = timedelta(seconds=times.TRIAL_STORE.seconds())
    ports: list[Any] = [None]
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=limit)
        ports = [store.port]
    dist.broadcast_object_list(ports, src=0)
    if rank != 0:
        store = dist.TCPStore(
            "127.0.0.1", ports[0], is_master=False, wait_for_workers=False, timeout=limit
        )
    try:
        yield store
    finally:
        leaving = dist.PrefixStore("labkit leaving", store)
        if leaving.add("left", 1) == world_size:
            leaving.set("all left", "")
        if rank == 0:
            leaving.wait(["all left"], limit * 3)
