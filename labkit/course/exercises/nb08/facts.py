"""Name a mistake by a fact that a trial tells.

Each trial lets the repaired function work on a small case and tells what came of it, fact by fact.
Facts that need all ranks are gathered here, not by the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...mistakes import When

#: What came of a trial, by name.
Facts = dict[str, Any]


def has(**facts: Any) -> When:
    """Return the predicate of a mistake that shows in these facts on some rank."""

    def when(yours: Sequence[Any], expected: Any, n: int) -> bool:
        wanted = {name.replace("_", " "): value for name, value in facts.items()}
        return any(isinstance(y, dict) and wanted.items() <= y.items() for y in yours)

    return when


def fact(name: str, test: Callable[[Any, int], bool]) -> When:
    """Return the predicate of a mistake: ``test(value, world_size)`` of a fact of rank 0."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return bool(test(yours[0][name], n))

    return when
