"""Draw how far the learners of a class are: a row per learner, a column per notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..base.errors import UsageError
from .chart import check_count, check_length
from .picture import Picture
from .style import (
    CARD,
    GRID,
    INK,
    MAX_WIDTH,
    NOTE_SIZE,
    SERIES,
    new_figure,
    style_axes,
    text_on,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Most rows, and most columns: beyond these the numbers would be too small to read.
MAX_LEARNERS, MAX_NOTEBOOKS = 40, 22
#: Inches of a box, and of what is around the boxes: names, title, reading help.
WIDTH, HEIGHT, LEFT, ABOVE = 0.29, 0.22, 1.6, 0.9
#: Characters of a name that fit into LEFT.
NAME = 18
#: Shares of a notebook, from which on a box has this colour: light to dark, one hue.
SHADES = ((1.0, SERIES[0]), (0.5, "#4477AA"), (1e-9, "#B3CDE8"), (0.0, "#F3F5F7"))


def class_progress(
    passed: Mapping[str, Sequence[int]],
    exercises: Mapping[str, int],
    *,
    at: Mapping[str, str] | None = None,
    title: str = "",
) -> Picture:
    """Draw how many exercises of each notebook each learner has passed.

    Parameters
    ----------
    passed
        By learner: the exercises that have passed in each notebook. At most 40 learners.
    exercises
        By notebook: how many there are. At most 22 notebooks.
    at
        By learner: the notebook that was worked on last, which has a frame.

    Examples
    --------
    >>> picture = labkit.figures.class_progress(
    ...     {"ada": [4, 2], "grace": [1, 0]}, {"00": 4, "01": 6}, at={"ada": "01", "grace": "00"}
    ... )
    >>> print(picture.text)
    Exercises passed by 2 learners in 2 notebooks.
    ada: 6 of 10, at 01
    grace: 1 of 10, at 00
    A box is a notebook of one learner: ...
    """
    check_count(passed, "learners", MAX_LEARNERS)
    check_count(exercises, "notebooks", MAX_NOTEBOOKS)
    if not passed or not exercises:
        raise UsageError("passed and exercises need at least one learner and one notebook")
    for name, counts in passed.items():
        check_length(name, counts, "numbers", list(exercises))
    at = at or {}
    rows, columns = len(passed), len(exercises)
    figure = new_figure(min(MAX_WIDTH, LEFT + max(columns, 6) * WIDTH), ABOVE + rows * HEIGHT)
    axes = figure.subplots()
    lines = [f"Exercises passed by {rows} learner{'s' * (rows > 1)} in {columns} "
             f"notebook{'s' * (columns > 1)}."]  # fmt: skip
    total = sum(exercises.values())
    for row, (name, counts) in enumerate(passed.items()):
        for column, (notebook, count) in enumerate(zip(exercises, counts, strict=True)):
            _box(axes, row, column, count, exercises[notebook], framed=at.get(name) == notebook)
        place = f", at {at[name]}" if at.get(name) else ""
        lines.append(f"{name}: {sum(counts)} of {total}{place}")
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xticks(range(columns), list(exercises))
    axes.set_yticks(range(rows), [_short(name) for name in passed])
    style_axes(axes, title=title, xlabel="notebook", grid="")
    axes.xaxis.set_label_position("top")
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)  # a name may have two dollar signs
    axes.spines[["left", "bottom"]].set_visible(False)
    note = (
        "A box is a notebook of one learner: the number of exercises passed, darker from one half "
        "on and darkest when all have. A frame: worked on last."
    )
    text = "\n".join(lines) if not title else "\n".join([f"{title}.", *lines])
    return Picture(figure, text, note)


def _box(axes: Axes, row: int, column: int, count: int, of: int, *, framed: bool) -> None:
    from matplotlib.patches import Rectangle

    share = count / of if of else 0.0
    colour = next(shade for least, shade in SHADES if share >= least)
    edge, line, above = (INK, 1.6, 3) if framed else (GRID if not count else CARD, 0.8, 2)
    axes.add_patch(
        Rectangle((column - 0.46, row - 0.44), 0.92, 0.88, facecolor=colour, edgecolor=edge,
                  linewidth=line, zorder=above)
    )  # fmt: skip
    if count:
        axes.text(column, row, str(count), ha="center", va="center_baseline", zorder=4,
                  color=text_on(colour), fontsize=NOTE_SIZE)  # fmt: skip


def _short(name: str) -> str:
    """Return a name as the figure can show it: short, and of letters that its font has."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    known = get_font(findfont(FontProperties())).get_charmap()
    shown = "".join(c if ord(c) in known else "�" for c in name)
    return shown if len(shown) <= NAME else f"{shown[: NAME - 1]}…"
