"""Name a mistake by a fact that a trial tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...mistakes import Predicate

#: What an answer raises that reads a file before it is there.
MISSING = "FileNotFoundError"
#: What came of a trial, by name.
Facts = dict[str, Any]


def raises(error: BaseException) -> str:
    """Return what a trial tells of an answer that raised an error."""
    return f"raises {type(error).__name__}"


def fact(name: str, test: Callable[[Any], bool]) -> Predicate:
    """Return the predicate of a mistake that shows in one fact."""
    return Predicate(lambda yours, expected, n: test(yours[name]))


def fact_is(name: str, *values: Any) -> Predicate:
    """Return the predicate of a mistake that gives one of these values."""
    return fact(name, lambda found: found in values)
