"""The blocks of code that docs/TEACHING.md shows, so that tests run what teachers copy."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "TEACHING.md"


def blocks(first: str) -> list[str]:
    """Return the blocks whose text begins so."""
    found: list[str] = re.findall(r"```\w+\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return [block for block in found if block.startswith(first)]
