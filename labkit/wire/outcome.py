"""What one rank made of a cell or of a call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
    error: tuple[str, str, list[str]] | None = None  #: name, message, formatted lines
