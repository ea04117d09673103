"""What one rank made of a cell or of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

#: An error as a rank tells it: name, message, formatted lines.
Error = tuple[str, str, list[str]]


class Returned(NamedTuple):
    """What a rank answers to a call of a function, or to a question for a variable."""

    status: Literal["ok", "missing", "error"]
    content: bytes | Error | None = None  #: of "ok" the pickled value, of "error" the error


#: What Jupyter's messages have of an output: ``{"data": mime bundle, "metadata": …}``.
Bundle = dict[str, Any]


@dataclass
class Outcome:
    """What one rank made of a cell or a call."""

    rank: int
    stdout: str = ""
    stderr: str = ""
    displays: list[Bundle] = field(default_factory=list)  #: in order
    result: Bundle | None = None  #: of the last expression
    names: Sequence[str] = ()  #: the ``display_id`` of each display, "" if it has none
    #: What displays under a ``display_id`` shall be, also those of earlier cells.
    updates: Mapping[str, Bundle] = field(default_factory=dict)
    value: Any = None  #: of a call
    error: Error | None = None
