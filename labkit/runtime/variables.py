"""Read and set variables of every rank."""

from __future__ import annotations

from typing import Any

from ..errors import UsageError
from ..rank_names import label
from ..wire import errands
from .finish import finish, values
from .follow import follow
from .process_group import GroupKeeper
from .request import send_errand


def pull(group: GroupKeeper, name: str) -> list[Any]:
    """Return a variable of every rank, in rank order.

    Raises
    ------
    UsageError
        If a rank does not have it.
    """
    request = send_errand(group, range(group.cluster.size), errands.pull(name))
    finished = finish(request, follow(request), tolerate=True)
    missing = [o.rank for o in finished.outcomes if o.value and o.value[0] == "missing"]
    if missing:
        raise UsageError(f"There is no variable {name!r} on {label(missing)}.")
    if finished.error is not None:
        raise finished.error
    return values(finished.outcomes)


def push(group: GroupKeeper, payload: bytes) -> None:
    """Set variables on every rank from a pickled dict."""
    request = send_errand(group, range(group.cluster.size), errands.push(payload))
    finish(request, follow(request))
