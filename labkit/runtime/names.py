"""Ask ranks what a name of their cells means, or which of them have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import times
from ..wire import errands
from ..wire.names import Suggestion
from .process_group import GroupKeeper
from .request import send_errand


def complete(group: GroupKeeper, ranks: Sequence[int], cell: str, cursor: int) -> list[Suggestion]:
    """Return how the text before the cursor could go on, by the first rank with nothing to do."""
    found: list[Suggestion] | None = _ask(group, ranks, errands.complete(cell, cursor))
    return found or []


def explain(
    group: GroupKeeper, ranks: Sequence[int], cell: str, cursor: int, detail: int
) -> dict[str, str]:
    """Return the help on the name at the cursor, by MIME type, by the first rank that is free."""
    found: dict[str, str] | None = _ask(group, ranks, errands.explain(cell, cursor, detail))
    return found or {}


def find(group: GroupKeeper, name: str) -> list[int]:
    """Return the ranks that have a name, of those with nothing to do."""
    free = group.cluster.free_ranks()
    if not free:
        return []
    sent = send_errand(group, free, errands.list_names(True))
    sent.result.wait(times.COMPLETION)
    done = [rank for rank in free if sent.has_replied(rank)]
    return [o.rank for o in sent.outcomes() if o.rank in done and name in (o.value or ())]


def _ask(group: GroupKeeper, ranks: Sequence[int], call: errands.Call[Any]) -> Any:
    """Return the answer of the first rank with nothing to do, None if there is none in time."""
    free = set(group.cluster.free_ranks())
    chosen = [rank for rank in ranks if rank in free][:1]
    if not chosen:
        return None
    sent = send_errand(group, chosen, call)
    sent.result.wait(times.COMPLETION)
    return sent.outcomes()[0].value if sent.result.done() else None
