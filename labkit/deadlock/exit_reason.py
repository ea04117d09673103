"""What became of a rank that others wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ExitReason:
    """What a rank that is gone did instead of coming."""

    kind: Literal["ended", "not asked", "raised", "died"]
    error: str = ""  #: name of what it raised
    code: int | None = None  #: exit code of its process, negative for a signal


ENDED, NOT_ASKED = ExitReason("ended"), ExitReason("not asked")
