"""Spare the ranks a search for plug-ins whenever they form a group.

Torch 2.15 asks for each backend of a group whether a package that is installed brings a plug-in of
that name. It reads the entry points of every package for that, twice per group: 10 ms of a
processor on each rank. Here that is done once, in the warm process, for the names of torch's own
backends; a plug-in of another name is looked for when it is asked for, as torch does.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

import torch.distributed as dist

#: The group of entry points, as torch names it.
GROUP = "torch.distributed.backends"


@cache
def installed() -> frozenset[str]:
    """Name the backends for which a plug-in is installed."""
    return frozenset(point.name.lower() for point in entry_points(group=GROUP))


def install() -> None:
    """Spare this process the search, where this version of torch has one."""
    original = getattr(dist.Backend, "_ensure_backend_registered", None)
    if original is None:
        return
    known = frozenset(dist.Backend.backend_list) - installed()

    def ensure(name: str) -> None:
        if name.lower() not in known:
            original(name)

    dist.Backend._ensure_backend_registered = ensure  # type: ignore[method-assign]
