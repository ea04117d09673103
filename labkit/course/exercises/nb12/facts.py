"""Say what came of a trial, fact by fact, and name a mistake by a fact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...mistakes import When

#: What came of a trial, by name.
Facts = dict[str, Any]


def raises(error: BaseException) -> str:
    return f"raises {type(error).__name__}"


def fact(name: str, test: Callable[[Any], bool]) -> When:
    """Return the predicate of a mistake that shows in one fact."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return isinstance(yours, dict) and test(yours[name])

    return when


def fact_is(name: str, *values: Any) -> When:
    return fact(name, lambda found: found in values)


MISSING = "FileNotFoundError"
