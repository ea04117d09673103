"""Make and destroy the groups of a trial: a world of fewer ranks, and what an answer leaves behind.

Torch keeps every group that was made, in tables of its own, until somebody destroys it. One of
gloo has three threads, one of which wakes up a hundred times a second: a rank that was left a few
hundred such groups is busy with nothing else.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
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
    """Make the default group be one of the first ``size`` ranks, for those; every rank calls it.

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


def destroy_made(busy: Collection[str]) -> None:
    """Destroy the groups made here, whoever still refers to them, as torch does to those of meshes;
    but none with work under way, which would be waited for: those whose names are ``busy``."""
    for group in [g for g in groups.members() if g in _made and g.group_name not in busy]:
        dist.destroy_process_group(group)


#: Those that have stayed so far.
_held: WeakSet[ProcessGroup] = WeakSet()


def destroy_unused(made: Iterable[ProcessGroup], busy: Collection[str]) -> None:
    """Destroy those of these groups to which nothing refers but torch's tables. One that stays
    now is looked at again with the next ones.

    ``busy`` are the names of groups with work under way, which would be waited for: they stay. So
    does a group of NCCL: to end one is a matter of all its members.
    """
    _held.update(filter(_is_gloo, made))
    known = groups.members()
    names = [g.group_name for g in _held if g in known and g.group_name not in busy]
    del known  # refers to them all
    of_meshes = _names_of_meshes() if names else set()
    for name in names:
        if name in of_meshes:  # of which torch remembers some for good
            _held.discard(_find(name))
        elif not _is_held(name):
            dist.destroy_process_group(_find(name))


def _is_gloo(group: ProcessGroup) -> bool:
    return group is not dist.group.WORLD and groups.backends(group) == ("gloo",)


def _find(name: str) -> ProcessGroup:
    return next(g for g in groups.members() if g.group_name == name)


def _is_held(name: str) -> bool:
    """Return whether more refers to a group than torch's tables and, here, one variable."""
    group = _find(name)
    # The argument of getrefcount is one more.
    return sys.getrefcount(group) > 2 + sum(place is group for place in _places())


def _places() -> Iterator[Any]:
    """Yield all that stands in the tables of torch's module: keys, values, what lists hold."""
    for table in [t for t in vars(c10d).values() if type(t) is dict]:
        yield from table
        for value in table.values():
            yield value
            if type(value) is list:
                yield from value


def _names_of_meshes() -> set[str]:
    """Return the names of groups of device meshes, which know theirs by nothing else."""
    module = sys.modules.get("torch.distributed.device_mesh")
    if module is None:
        return set()
    found: set[str] = set()
    for mesh in [o for o in gc.get_objects() if issubclass(type(o), module.DeviceMesh)]:
        with contextlib.suppress(Exception):  # it has none, has lost them, or was never finished
            found.update(mesh.get_group(i).group_name for i in range(mesh.ndim))
    return found
