"""What one rank made of a cell or of a call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

#: An error as a rank tells it: name, message, formatted lines.
Error = tuple[str, str, list[str]]


class Returned(NamedTuple):
    """What a rank answers to a call of a function, or to a question for a variable."""

    status: Literal["ok", "missing", "error"]
    content: bytes | Error | None = None  #: of "ok" the pickled value, of "error" the error


@dataclass
class Outcome:
    """What one rank made of a cell or a call."""

    rank: int
    stdout: str = ""
    stderr: str = ""
    #: What it displayed, each as {"data": mime bundle, "metadata": …}; the last expression's too.
    displays: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    value: Any = None  #: of a call
    error: Error | None = None
