"""Draw what is in checkpoints, what is left of them after an accident, and what a run misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import UsageError
from ..rank_names import rank_colour
from .picture import Picture
from .style import INK, SERIES, new_figure, style_axes, style_legend

#: Dashes beside colours: curves that lie on each other are told apart.
LINES = ("-", "--", ":", "-.", (0, (1, 1)), (0, (5, 1)))
COLOURS = (*SERIES, "#222222", "#EE99AA")
#: What may be there after an accident, with mark and colour.
LEFT = {"old": ("s", "#6699CC"), "nothing": ("X", "#994455"), "new": ("o", "#004488")}


def written_by(weight: Any, *, title: str = "", how_to_read: str = "") -> Picture:
    """Draw a loaded weight, coloured by the rank that wrote each of its numbers.

    Parameters
    ----------
    weight
        A matrix, (rows, columns), each number of which is a rank.

    Returns
    -------
    Picture
        The matrix as an image. The text holds no rank.

    Raises
    ------
    UsageError
        If it is no matrix.

    Examples
    --------
    >>> picture = labkit.figures.written_by([[1, 1], [0, 0]], title="One weight")
    >>> print(picture.text.splitlines()[0])
    One weight of 2 × 2 numbers, coloured by the rank that wrote them.
    """
    from matplotlib.colors import ListedColormap

    ranks = np.asarray(weight, dtype=int)
    if ranks.ndim != 2:
        raise UsageError(f"a weight has rows and columns; this one has the shape {ranks.shape}")
    most = int(ranks.max(initial=0)) + 1
    figure = new_figure(5, 3)
    axes = figure.subplots()
    colours = ListedColormap([rank_colour(rank) for rank in range(most)])
    axes.imshow(ranks, cmap=colours, vmin=0, vmax=most, interpolation="nearest")
    for rank in sorted(set(ranks.ravel().tolist())):
        axes.plot([], [], "s", color=rank_colour(rank), label=f"rank {rank}")
    style_legend(axes, loc="center left", bbox_to_anchor=(1.02, 0.5))
    style_axes(axes, title=title, xlabel="column", ylabel="row", grid="")
    rows, columns = ranks.shape
    text = f"{title or 'A weight'} of {rows} × {columns} numbers, coloured by the rank that wrote"
    return Picture(figure, f"{text} them.", how_to_read)


def resumed_without(
    gaps: Mapping[str, Sequence[float]], *, title: str = "", how_to_read: str = ""
) -> Picture:
    """Draw how far runs are from the one that nothing interrupted, by the part that each lacks.

    Parameters
    ----------
    gaps
        By the part that was left out of the checkpoint, up to six, the largest difference between
        the weights of the two runs after each step.

    Returns
    -------
    Picture
        A curve per part; the line at 0 is a run that lacks nothing. The text holds no number.

    Raises
    ------
    UsageError
        If there are more than six parts.

    Examples
    --------
    >>> picture = labkit.figures.resumed_without({"rng": [0.1, 0.2], "epoch": [0.0, 0.3]})
    >>> print(picture.text.splitlines()[0])
    Distance of resumed runs from the uninterrupted run, by step, without rng, without epoch.
    """
    from matplotlib.ticker import MaxNLocator

    if len(gaps) > len(LINES):
        raise UsageError(f"there are {len(gaps)} parts; a figure shows up to {len(LINES)}")
    figure = new_figure(7.5, 3.4)
    axes = figure.subplots()
    for (part, gap), line, colour in zip(gaps.items(), LINES, COLOURS, strict=False):
        steps = range(1, len(gap) + 1)
        axes.plot(steps, gap, linestyle=line, color=colour, linewidth=1.6, label=part)
    axes.axhline(0, color=INK, linewidth=2)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style_legend(axes, title="left out", loc="upper left", bbox_to_anchor=(1.02, 1))
    style_axes(axes, title=title, xlabel="steps since the checkpoint", ylabel="largest difference")
    text = "Distance of resumed runs from the uninterrupted run, by step, "
    text += ", ".join(f"without {part}" for part in gaps) + "."
    note = how_to_read or "The line at 0: a run resumed with the whole checkpoint."
    return Picture(figure, text, note)


def killed_writers(
    percent: Sequence[float],
    left: Mapping[str, Sequence[str]],
    *,
    title: str = "",
    how_to_read: str = "",
) -> Picture:
    """Draw which checkpoint is there after its writer was killed, by when it was killed.

    Parameters
    ----------
    percent
        How much of the file was written when each writer was killed.
    left
        By the way of writing, what could be loaded afterwards: "old", "new" or "nothing".

    Returns
    -------
    Picture
        A row per way of writing, a mark per writer. The text counts them.

    Raises
    ------
    UsageError
        If a row has another number of writers.

    Examples
    --------
    >>> left = {"rename": ["old", "new"], "overwriting": ["nothing", "new"]}
    >>> picture = labkit.figures.killed_writers([50, 100], left)
    >>> print(picture.text.splitlines()[0])
    Left by 2 writers. By rename: old 1, new 1; by overwriting: nothing 1, new 1.
    """
    for name, found in left.items():
        if len(found) != len(percent):
            raise UsageError(f"{name!r} has {len(found)} writers, not {len(percent)}")
    figure = new_figure(7.5, 1.1 + 0.42 * len(left))
    axes = figure.subplots()
    for kind, (mark, colour) in LEFT.items():
        points = [
            (x, row)
            for row, found in enumerate(left.values())
            for x, what in zip(percent, found, strict=True)
            if what == kind
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, mark, color=colour, markersize=6, label=kind)
    axes.set_yticks(range(len(left)), list(left))
    axes.set_ylim(len(left) - 0.5, -0.5)
    style_legend(axes, title="afterwards", loc="center left", bbox_to_anchor=(1.02, 0.5))
    style_axes(axes, title=title, xlabel="killed at % of the file", grid="")
    counts = [
        f"{name}: "
        + ", ".join(f"{kind} {list(found).count(kind)}" for kind in LEFT if kind in found)
        for name, found in left.items()
    ]
    text = f"Left by {len(percent)} writers. By {'; by '.join(counts)}."
    return Picture(figure, text, how_to_read)
