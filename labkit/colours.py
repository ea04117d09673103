"""One colour a rank, the same in every figure and in front of every output."""

from __future__ import annotations

#: Repeated from rank 8 on. Readable as bold text on JupyterLab's white and on its dark theme, and
#: under white numbers (contrast of 3 or more); told apart by colour-blind readers too. The first
#: four are furthest apart, for most labs have four ranks. ``tests/test_colours.py`` measures it.
RANK_COLOURS = (
    "#2963AF",
    "#D77B08",
    "#0A9777",
    "#FA529F",
    "#4C49EE",
    "#A1472A",
    "#3296D2",
    "#B86200",
)


def rank_colour(rank: int) -> str:
    """Return the colour of a rank."""
    return RANK_COLOURS[rank % len(RANK_COLOURS)]
