"""Name ranks in words and colours, and join those that say the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

#: Repeated from rank 8 on; told apart by colour-blind readers too. The first four are furthest
#: apart, for most labs have four ranks. As text they are bold labels on JupyterLab's white and on
#: its dark theme with a contrast of 3 or more: one colour cannot have 4.5 on both. In figures,
#: ``figures.style`` has ``text_on`` and ``ink_of`` for the colour of words.
#: ``tests/unit/base/test_rank_colours.py`` measures it.
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
    """Return the colour of a rank.

    Examples
    --------
    >>> labkit.figures.rank_colour(0)
    '#2963AF'
    >>> labkit.figures.rank_colour(0) == labkit.figures.rank_colour(8)
    True
    """
    return RANK_COLOURS[rank % len(RANK_COLOURS)]


def label(ranks: Sequence[int]) -> str:
    """Name some ranks: ``rank 2``, ``ranks 0–3``, ``ranks 0, 2–3``."""
    parts = []
    ranks = sorted(ranks)
    start = 0
    for i in range(1, len(ranks) + 1):
        if i == len(ranks) or ranks[i] != ranks[i - 1] + 1:
            first, last = ranks[start], ranks[i - 1]
            parts.append(str(first) if first == last else f"{first}–{last}")
            start = i
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(parts)}"


def how_to_replace(ranks: Sequence[int]) -> str:
    """Return how to get fresh processes for some ranks."""
    return f"lab.restart(ranks={list(ranks)}) replaces {'it' if len(ranks) == 1 else 'them'}"


#: What progress bars measure: it is the same on two ranks by chance only.
_RATE = re.compile(r"(?:it/s|s/it)[],]")


#: What ranks have: a text, a tuple of texts, a value.
T = TypeVar("T")


def fold(
    values: Mapping[int, T], key: Callable[[T], Hashable] = lambda value: value
) -> list[tuple[list[int], T]]:
    """Join ranks with equal values; the groups are in the order of their first rank.

    Progress bars stay one per rank.

    Parameters
    ----------
    values
        What each rank has.
    key
        What to compare of a value, if that cannot be hashed itself.
    """
    groups: dict[tuple[Hashable, int], list[int]] = {}
    for rank in sorted(values):
        same = key(values[rank])
        apart = rank if has_rate(same) else -1
        groups.setdefault((same, apart), []).append(rank)
    return [(ranks, values[ranks[0]]) for ranks in groups.values()]


def has_rate(value: object) -> bool:
    """Return whether a text, or one in a tuple, is or has a progress bar."""
    if isinstance(value, tuple):
        return any(map(has_rate, value))
    return isinstance(value, str) and bool(_RATE.search(value))


def fold_begun(texts: Mapping[int, str]) -> list[tuple[list[int], str]]:
    """Join ranks of which one's text begins with the other's: they are on the way to the same.

    The longest text stands for all of them.
    """
    groups: list[tuple[list[int], str]] = []
    for rank in sorted(texts):
        text = texts[rank]
        for position, (ranks, longest) in enumerate([] if _RATE.search(text) else groups):
            if longest.startswith(text) or text.startswith(longest):
                groups[position] = ([*ranks, rank], max(longest, text, key=len))
                break
        else:
            groups.append(([rank], text))
    return groups


def bold_label(ranks: Sequence[int], *, coloured: bool = True) -> str:
    """Name some ranks in bold; a single one in its own colour (24-bit, as in the figures).

    Not where the background is the colour of errors: most of them would be hard to read there.
    """
    colour = ""
    if coloured and len(ranks) == 1:
        red_green_blue = bytes.fromhex(rank_colour(ranks[0])[1:])
        colour = ";38;2;" + ";".join(str(part) for part in red_green_blue)
    return f"\x1b[1{colour}m{label(ranks)}\x1b[0m"


def block(ranks: Sequence[int], text: str, *, coloured: bool = True, note: str = "") -> str:
    """Put the label, and a note, before a text: on its line if it has only one, else above it."""
    name = bold_label(ranks, coloured=coloured) + note
    lines = text.rstrip("\n").split("\n")
    if len(lines) == 1:
        return f"{name}: {lines[0]}\n"
    return "\n".join([f"{name}:", *(f"  {line}" for line in lines)]) + "\n"
