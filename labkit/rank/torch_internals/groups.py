"""Know this rank's process groups, of which torch has no public list, and its stores."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

ProcessGroup = dist.ProcessGroup
Work = dist.Work
#: The backend whose numbers are of messages and parts of monitored barriers, too.
GLOO = "gloo"


def _world() -> Any:
    return getattr(c10d, "_world", None)


def groups() -> list[ProcessGroup]:
    """List the groups that this rank is in; none if torch hides them."""
    return list(getattr(_world(), "pg_map", ()))


def members() -> dict[ProcessGroup, dict[int, int]]:
    """Return each group's ranks: rank in the world -> rank in the group.

    The default group alone if torch hides the others.
    """
    if not dist.is_initialized():
        return {}
    found = getattr(_world(), "pg_group_ranks", None)
    if found is None:
        found = {default(): {rank: rank for rank in range(dist.get_world_size())}}
    return {g: ranks for g, ranks in dict(found).items() if isinstance(g, ProcessGroup)}


def default() -> ProcessGroup:
    """Return the default group, of a rank that is in one."""
    group = dist.group.WORLD
    assert group is not None
    return group


def limit(group: ProcessGroup) -> timedelta | None:
    """Return how long a group waits before it gives up, None if torch does not say."""
    limits = []
    for device in ("cpu", "cuda"):
        try:
            backend = group._get_backend(torch.device(device))
            limits.append(backend.options._timeout)
        except (AttributeError, RuntimeError, TypeError):  # hidden, or no backend for it
            continue
    found = [value for value in limits if isinstance(value, timedelta)]
    return min(found) if found else None


def count_made() -> int:
    """Return how many groups this rank has made, or begun to make; 0 if torch hides it."""
    return int(getattr(_world(), "group_count", 0))


def forget_made() -> None:
    """Make torch count the groups, by which it names them, from the beginning."""
    if hasattr(_world(), "group_count"):
        _world().group_count = 0


def operation(work: Work) -> int | None:
    """Return the number that the flight recorder has for a work as ``op_id``.

    None if torch does not say: reduce_scatter's has none.
    """
    try:
        return int(work._get_sequence_number())
    except (AttributeError, RuntimeError):
        return None


#: what ``backends`` has found
_backends: WeakKeyDictionary[ProcessGroup, tuple[str, ...]] = WeakKeyDictionary()


def backends(group: ProcessGroup) -> tuple[str, ...]:
    """Return the backends of a group that have a recorder; one that serves GPUs comes first. Of a
    group that torch does not know, the only one is "".

    Each numbers its collectives for itself. A group keeps its backends, and torch takes longer to
    say than all else that is noted of a call.
    """
    found = _backends.get(group)
    if found is None:
        try:
            known = dist.get_backend(group)
        except ValueError:  # torch does not know it: it was made by hand, or has been destroyed
            return ("",)
        found = tuple(name for name in ("nccl", "gloo") if name in known) or (known,)
        _backends[group] = found
    return found


def part(group: ProcessGroup, backend: str) -> Any:
    """Return what serves the tensors of a backend's devices in a group, the group itself if torch
    hides that."""
    get = getattr(group, "_get_backend", None)
    return group if get is None else get(torch.device("cuda" if backend == "nccl" else "cpu"))


def serving(group: ProcessGroup, tensors: Iterable[torch.Tensor]) -> str:
    """Return the backend of a group that serves some tensors; the first if there are none."""
    known = backends(group)
    on_cpu = any(t.device.type == "cpu" for t in tensors)
    return known[-1] if on_cpu else known[0]


def nccl(group: ProcessGroup) -> Any:
    """Return the NCCL part of a group, None if it has none or torch hides it.

    A group may have another backend beside it, for tensors on the CPU.
    """
    get = getattr(group, "_get_backend", None)
    if get is None or "nccl" not in dist.get_backend(group):
        return None
    try:
        found = get(torch.device("cuda"))
    except RuntimeError:  # a group for which torch has another device
        return None
    while hasattr(found, "wrapped_pg"):  # TORCH_DISTRIBUTED_DEBUG=DETAIL
        found = found.wrapped_pg
    return found


def abort() -> int:
    """Abort NCCL in this rank's groups, which frees it from their collectives; return in how many.

    Gloo has no working abort: see ``unblock``.
    """
    found = [backend for group in groups() if (backend := nccl(group)) is not None]
    for backend in found:
        backend.abort()
    return len(found)


def failure(backend: Any) -> str:
    """Return what NCCL's watchdog has found wrong with a backend ("TIMEOUT", "COMM_ERROR"), ""
    if nothing, or if this torch does not say."""
    get_error = getattr(backend, "get_error", None)
    name = "SUCCESS" if get_error is None else get_error().name
    return "" if name == "SUCCESS" else name


def issued(group: ProcessGroup) -> int | None:
    """Return how many operations a group counts: collectives, messages and the parts of
    monitored barriers. None if torch does not say."""
    try:
        return int(group._get_sequence_number_for_group())  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return None


def issued_by(group: ProcessGroup, backend: str) -> int:
    """Return how many operations one backend of a group counts; 0 if torch does not say."""
    several = len(backends(group)) > 1
    return issued(part(group, backend) if several else group) or 0


# -- stores ---------------------------------------------------------------------------------------

#: How long a ``TCPStore`` waits that is given no limit.
STORE_LIMIT = timedelta(minutes=5)


def store_limit(store: dist.Store) -> timedelta | None:
    """Return how long a store waits for a key, None if torch does not say."""
    found = getattr(store, "timeout", None)
    return found if isinstance(found, timedelta) else None
