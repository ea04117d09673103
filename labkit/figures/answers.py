"""Draw which of several questions each of several machines, backends or types said yes to."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import UsageError
from .picture import Picture
from .sheet import Sheet
from .style import INK, LABEL_SIZE, TITLE_SIZE, text_on

#: Most rows and columns of one table.
MAX_ROWS, MAX_COLUMNS = 16, 6
#: What stands where something was refused or is not there; it has a colour of its own.
NO = "no"
REFUSED, GIVEN = "#EECC66", "#A9C8E8"
#: Inches of a row's name, of a column, of a row, of the heads, between two boxes.
NAME, COLUMN, ROW, HEADS, GAP = 1.35, 1.15, 0.27, 0.85, 0.04


def answers(
    table: Mapping[str, Mapping[str, object]], *, title: str = "", how_to_read: str = ""
) -> Picture:
    """Draw a table of answers, and mark those that are "no".

    Parameters
    ----------
    table
        For each column, such as ``"gloo"``, its answer in each row, such as ``{"SUM": 27, "AVG":
        "no"}``. All columns have the same rows; at most 16 rows and 6 columns.
    title
        What was asked.
    how_to_read
        One sentence that says what an answer means.

    Returns
    -------
    Picture
        A box per answer; those that are "no" have a colour of their own.

    Raises
    ------
    UsageError
        If the table is empty or too large, or columns differ in their rows.

    Examples
    --------
    >>> picture = labkit.figures.answers({"floats": {"SUM": 27.0, "BAND": "no"}})
    >>> print(picture.text)
    columns: floats
    SUM: 27.0
    BAND: no
    """
    rows = _rows(table)
    sheet = Sheet(NAME + COLUMN * len(table), HEADS + ROW * len(rows))
    sheet.words((0, 0.12), title, ha="left", weight="bold", size=TITLE_SIZE)
    for column, (head, said) in enumerate(table.items()):
        left = NAME + column * COLUMN
        sheet.words((left + COLUMN / 2, HEADS - 0.28), head, linespacing=1.1)
        for row, name in enumerate(rows):
            top = HEADS + row * ROW
            colour = REFUSED if said[name] == NO else GIVEN
            sheet.box((left + GAP, top + GAP / 2), COLUMN - 2 * GAP, ROW - GAP, colour)
            sheet.words((left + COLUMN / 2, top + ROW / 2), str(said[name]), colour=text_on(colour))
    for row, name in enumerate(rows):
        place = (NAME - 0.1, HEADS + (row + 0.5) * ROW)
        sheet.words(place, name, ha="right", colour=INK, size=LABEL_SIZE)
    heads = ", ".join(" ".join(head.split()) for head in table)
    lines = [title] if title else []
    lines += [f"columns: {heads}"]
    lines += [f"{name}: {', '.join(str(said[name]) for said in table.values())}" for name in rows]
    return Picture(sheet.figure, "\n".join(lines), how_to_read)


def _rows(table: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return the names of the rows, or say what is wrong with the table."""
    if not 1 <= len(table) <= MAX_COLUMNS:
        raise UsageError(f"the table has {len(table)} columns; a figure shows 1 to {MAX_COLUMNS}")
    rows = {head: list(said) for head, said in table.items()}
    first = next(iter(rows.values()))
    if not 1 <= len(first) <= MAX_ROWS:
        raise UsageError(f"the table has {len(first)} rows; a figure shows 1 to {MAX_ROWS}")
    for head, names in rows.items():
        if names != first:
            raise UsageError(f"column {head!r} has the rows {names}, the first column {first}")
    return first
