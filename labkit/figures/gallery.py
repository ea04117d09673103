"""Show several pictures beside each other: as many in a line as the page has room for."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import Any

from .picture import Picture


class Gallery:
    """Set pictures beside each other, in lines that break where the page ends.

    On a wide page the pictures stand in columns, and on a phone one below the other, each as large
    as it was drawn.

    Parameters
    ----------
    pictures
        What to show, in order; best of equal width.
    how_to_read
        One sentence that says how to read them, as the text of all of them ends with.

    Attributes
    ----------
    pictures
        The same, each of which can be saved.
    text
        The texts of all pictures, with an empty line between two, and the reading help.

    Examples
    --------
    >>> pictures = [labkit.figures.before_after([[1]], [[k]], f"k = {k}") for k in (1, 2)]
    >>> print(labkit.figures.Gallery(pictures, "Left before, right after.").text)
    k = 1
    rank 0: [1] → [1]
    <BLANKLINE>
    k = 2
    rank 0: [1] → [2]
    The dot is the reduction, not a place: no rank is the centre.
    <BLANKLINE>
    Left before, right after.
    """

    def __init__(self, pictures: Sequence[Picture], how_to_read: str = "") -> None:
        self.pictures = list(pictures)
        self._note = how_to_read
        self.text = "\n\n".join([*(picture.text for picture in pictures), how_to_read]).strip()

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        images = "".join(
            f'<img alt="{escape(picture.text)}" width="{picture.width}" '
            f'style="margin: 3px; max-width: 100%" '
            f'src="data:image/png;base64,{b64encode(picture.png).decode()}">'
            for picture in self.pictures
        )
        note = f"<p>{escape(self._note)}</p>" if self._note else ""
        html = f'<div style="display: flex; flex-wrap: wrap">{images}</div>{note}'
        return {"text/html": html, "text/plain": self.text}
