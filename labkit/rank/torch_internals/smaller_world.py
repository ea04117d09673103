"""Let the first ranks be all there are for a while: torch's default group is one of theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from weakref import WeakSet

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from . import groups
from .groups import ProcessGroup

#: Groups that a rank may make meanwhile: afterwards all ranks count on from the same number.
MOST = 1000
#: The groups made here, as long as they exist.
_made: WeakSet[ProcessGroup] = WeakSet()


@contextmanager
def world_of(size: int) -> Iterator[None]:
    """Let the default group be one of the first ``size`` ranks, for those; every rank calls it.

    The others keep the whole one. Torch names a group by the number of groups that this rank has
    made, which differs between the two meanwhile.
    """
    whole, before = dist.group.WORLD, c10d._world.group_count
    own = dist.new_group(list(range(size)))
    try:
        if isinstance(own, ProcessGroup):  # else this rank is none of them
            _made.add(own)
            c10d._update_default_pg(own)
        yield
    finally:
        if dist.group.WORLD is own:
            c10d._update_default_pg(whole)
        if dist.group.WORLD is whole:  # else an answer has formed groups of its own
            c10d._world.group_count = before + MOST


def end(busy: Collection[str]) -> None:
    """Destroy the groups made here, whoever still refers to them, as torch does to those of meshes;
    but none with work under way, which would be waited for: those whose names are ``busy``."""
    for group in [g for g in groups.members() if g in _made and g.group_name not in busy]:
        dist.destroy_process_group(group)
