"""Read which ranks a ``%%px`` cell is for."""

from __future__ import annotations

import re

from ..errors import UsageError


def parse_ranks(text: str) -> list[int]:
    """Read ``0,2``, ``1-3`` or ``0,2-5`` (an en dash works too).

    Raises
    ------
    UsageError
        If it is anything else.
    """
    ranks: list[int] = []
    for part in text.replace("–", "-").replace(" ", "").split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise UsageError(f"--ranks takes numbers and ranges as in 0,2-3, not {text!r}.")
        first, last = int(match[1]), int(match[2] or match[1])
        ranks += range(first, last + 1)
    return ranks
