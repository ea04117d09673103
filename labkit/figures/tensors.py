"""Draw the tensors that ranks held before and after they talked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..colours import rank_colour
from .picture import Picture
from .style import COMBINED, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Largest number of values that a row of boxes can show.
MAX_VALUES = 16


def before_after(before: Sequence[Any], after: Sequence[Any], title: str = "") -> Picture:
    """Draw the tensors that the ranks held before and after a collective.

    Parameters
    ----------
    before, after
        One entry a rank, in rank order, as ``lab["x"]`` returns them: a tensor or an array, a
        list of them (drawn with gaps), or None for a rank that holds nothing. At most
        16 values a rank.
    title
        What happened in between, such as ``dist.all_reduce(x)``.

    Returns
    -------
    Picture
        Two columns of boxes, a row for each rank. A box after has the colour of the rank that
        held its value before, with an arrow from there; a value that nobody held before (a sum)
        is grey, and lines show where the ranks' values met.

    Raises
    ------
    ValueError
        If the two have different lengths or a rank holds more values than fit.
    """
    if len(before) != len(after):
        raise ValueError(f"before has {len(before)} ranks, after {len(after)}: give one entry each")
    rows = [[_pieces(entry) for entry in column] for column in (before, after)]
    owners = _owners(rows[0])
    widths = [max((_width(pieces) for pieces in column), default=1.0) for column in rows]
    gap = 2.4
    left_of = (0.0, max(widths[0], 1.0) + gap)
    total = left_of[1] + max(widths[1], 1.0)

    from matplotlib.figure import Figure

    figure = Figure(figsize=(0.52 * (total + 1.6), 0.52 * (len(before) + 1.4)))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-1.5, total + 0.1)
    axes.set_ylim(len(before) + 0.1, -1.3)
    axes.set_aspect("equal")
    axes.axis("off")
    for column, name in enumerate(("before", "after")):
        middle = left_of[column] + max(widths[column], 1.0) / 2
        axes.text(middle, -0.25, name, ha="center", va="bottom", color=INK, style="italic")
    if title:
        axes.text(total / 2 - 0.7, -0.85, title, ha="center", va="bottom", color=INK,
                  family="monospace", weight="bold")  # fmt: skip
    arrows: set[tuple[int, int]] = set()
    for rank in range(len(before)):
        axes.text(-0.25, rank + 0.5, f"rank {rank}", ha="right", va="center",
                  color=rank_colour(rank), weight="bold")  # fmt: skip
        _boxes(axes, rows[0][rank], left_of[0], rank, lambda value, r=rank: rank_colour(r))
        _boxes(axes, rows[1][rank], left_of[1], rank, lambda v: _colour(owners.get(v)))
        for value in _values(rows[1][rank]):
            owner = owners.get(value)
            if owner is not None:
                arrows.add((owner, rank))
    for source, target in sorted(arrows):
        axes.annotate(
            "",
            xy=(left_of[1] - 0.12, target + 0.5),
            xytext=(left_of[0] + max(widths[0], 1.0) + 0.12, source + 0.5),
            arrowprops={"arrowstyle": "-|>", "color": rank_colour(source), "lw": 1.2,
                        "alpha": 0.45 if source == target else 0.9, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
    _meeting(axes, rows, owners, left_of[0] + max(widths[0], 1.0) + 0.12, left_of[1] - 0.12)
    lines = [title] if title else []
    for rank, (old, new) in enumerate(zip(*rows, strict=True)):
        lines.append(f"rank {rank}: {_text(old)} → {_text(new)}")
    return Picture(figure, "\n".join(lines))


def _meeting(
    axes: Axes, rows: Sequence[Sequence[Any]], owners: dict[str, int], left: float, right: float
) -> None:
    """Draw where values meet: lines from every rank that brought some to a dot, and arrows from
    the dot to the ranks that left with values nobody held before."""
    known = {value for pieces in rows[0] for value in _values(pieces)}
    takers = [r for r, new in enumerate(rows[1]) if set(_values(new)) - known]
    givers = [r for r, old in enumerate(rows[0]) if old]
    if not takers:
        return
    middle = ((left + right) / 2, len(rows[0]) / 2)
    for rank in givers:
        axes.plot([left, middle[0]], [rank + 0.5, middle[1]], color=rank_colour(rank), lw=1.2)
    for rank in takers:
        axes.annotate(
            "",
            xy=(right, rank + 0.5),
            xytext=middle,
            arrowprops={"arrowstyle": "-|>", "color": COMBINED, "lw": 1.2, "shrinkB": 0},
        )
    axes.plot(*middle, marker="o", markersize=9, color=COMBINED)


def _pieces(entry: Any) -> list[np.ndarray]:
    """Turn what a rank holds into flat arrays, one a tensor."""
    if entry is None:
        return []
    if isinstance(entry, list | tuple) and entry and not np.isscalar(entry[0]):
        pieces = [_flat(item) for item in entry]
    else:
        pieces = [_flat(entry)]
    count = sum(len(piece) for piece in pieces)
    if count > MAX_VALUES:
        raise ValueError(f"a rank holds {count} values; a picture shows at most {MAX_VALUES}")
    return pieces


def _flat(item: Any) -> np.ndarray:
    if hasattr(item, "detach"):
        item = item.detach().cpu().float().numpy()
    return np.atleast_1d(np.asarray(item)).reshape(-1)


def _owners(rows: Sequence[Sequence[np.ndarray]]) -> dict[str, int]:
    """Map each value to the one rank that held it before; values of several ranks are left out."""
    owners: dict[str, int] = {}
    shared: set[str] = set()
    for rank, pieces in enumerate(rows):
        for value in set(_values(pieces)):
            if value in owners:
                shared.add(value)
            owners[value] = rank
    return {value: rank for value, rank in owners.items() if value not in shared}


def _colour(owner: int | None) -> str:
    return COMBINED if owner is None else rank_colour(owner)


def _values(pieces: Sequence[np.ndarray]) -> list[str]:
    return [_number(value) for piece in pieces for value in piece]


def _number(value: Any) -> str:
    return f"{float(value):.4g}"


def _text(pieces: Sequence[np.ndarray]) -> str:
    if not pieces:
        return "–"
    return " ".join("[" + " ".join(_number(v) for v in piece) + "]" for piece in pieces)


def _width(pieces: Sequence[np.ndarray]) -> float:
    return sum(len(piece) for piece in pieces) + 0.25 * max(0, len(pieces) - 1)


def _boxes(axes: Axes, pieces: Sequence[np.ndarray], x: float, row: int, colour: Any) -> None:
    """Draw a rank's values as a row of boxes; nothing held is a dash."""
    if not pieces:
        axes.text(x + 0.5, row + 0.5, "–", ha="center", va="center", color=INK)
    for piece in pieces:
        for value in piece:
            text = _number(value)
            from matplotlib.patches import FancyBboxPatch

            axes.add_patch(
                FancyBboxPatch((x + 0.06, row + 0.11), 0.88, 0.78, linewidth=0,
                               boxstyle="round,pad=0,rounding_size=0.12", color=colour(text))
            )  # fmt: skip
            size = 10 if len(text) <= 3 else 8 if len(text) <= 5 else 6
            axes.text(x + 0.5, row + 0.5, text, ha="center", va="center", color="white",
                      weight="bold", fontsize=size)  # fmt: skip
            x += 1
        x += 0.25
