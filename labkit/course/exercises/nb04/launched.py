"""Play a launcher: processes in no group, with numbers of the trial's own in their environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist


@contextmanager
def launched(**numbers: int) -> Iterator[None]:
    """Put numbers into the environment, as a launcher does, of a process that is in no group.

    A group that is there is left before and after: it would be in the way. The variables are
    what they were afterwards.
    """
    before = {name: os.environ.get(name) for name in numbers}
    _leave()
    os.environ.update({name: str(number) for name, number in numbers.items()})
    try:
        yield
    finally:
        _leave()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _leave() -> None:
    """Leave the default group, and let torch count the groups of this process from 0 again.

    Torch names a group by that count. After an ``init_process_group`` that failed on some ranks
    they count differently, and would not meet in the next one. Destroying a default group starts
    the count anew: so each rank forms one more, alone.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()


def renumbered(rank: int, world_size: int) -> int:
    """Return another number for a rank: rank 0 stays, where the store is, the others turn round."""
    return -rank % world_size
