"""Name a mistake by a fact that a trial tells.

Each trial lets the repaired function work on a small case and tells what came of it, fact by fact.
Facts that need all ranks are gathered here, not by the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...mistakes import Predicate, some_rank

#: What came of a trial, by name.
Facts = dict[str, Any]


def has(**facts: Any) -> Predicate:
    """Return the predicate of a mistake that shows in these facts on some rank."""
    wanted = {name.replace("_", " "): value for name, value in facts.items()}
    return some_rank(lambda mine, its: wanted.items() <= mine.items())


def fact(name: str, test: Callable[[Any, int], bool]) -> Predicate:
    """Return the predicate of a mistake: ``test(value, world_size)`` of a fact of rank 0."""
    return Predicate(lambda yours, expected, n: test(yours[0][name], n))
