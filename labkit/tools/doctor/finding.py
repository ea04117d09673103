"""What a check of the doctor reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """What one check found: fine, worth knowing, or something the course cannot do without."""

    topic: str
    state: State
    text: str
