"""Show the newest pictures of ranks while a cell runs, side by side where the ranks differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from ..base import times
from ..base.clock import SYSTEM, Clock
from ..runtime.output import Pictures
from ..wire.state import Bundle
from . import rich_html, show

#: Characters that pictures may take per second: JupyterLab's server drops output that comes at more
#: than 1 MB/s. A larger picture comes less often.
RATE = 400_000
#: Characters of one picture; what is larger is shown when the cell has ended.
LARGEST = 2_000_000


class Gallery:
    """What is new of pictures, and of what stands below them, twice a second at most.

    Parameters
    ----------
    pictures
        Returns what each rank shows so far.
    below
        Returns HTML that stands below, None if it has not changed since. Called at each poll.
    """

    def __init__(
        self,
        pictures: Callable[[], Mapping[int, Pictures]],
        below: Callable[[], str | None] = lambda: None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._pictures = pictures
        self._below = below
        self._clock = clock
        self._due = clock.now()
        self._shown: Mapping[int, Pictures] = {}
        self._html = self._html_below = ""
        self._is_new = False

    def poll(self) -> str | None:
        """Return all of it if something is new and it is time; else None."""
        if (below := self._below()) is not None:
            self._html_below, self._is_new = below, True
        if self._clock.now() < self._due:
            return None
        if (pictures := self._pictures()) != self._shown:
            self._shown, self._html, self._is_new = pictures, as_html(pictures), True
        if not self._is_new:
            return None
        self._is_new = False
        html = self._html + self._html_below
        self._due = self._clock.now() + max(times.PICTURES, len(html) / RATE)
        return html


def as_html(pictures: Mapping[int, Pictures]) -> str:
    """Return the pictures of ranks side by side, once those of ranks that draw the same."""
    return row(
        [
            f"<div>{show.html_label(ranks)}</div>{''.join(map(_image, shown.bundles))}"
            for ranks, shown in fold_recent(pictures)
        ]
    )


def fold_recent(pictures: Mapping[int, Pictures]) -> list[tuple[list[int], Pictures]]:
    """Join ranks of which one has lately shown what the other shows: it is only ahead of it. Its
    pictures stand for both.
    """
    groups: list[tuple[list[int], Pictures]] = []
    for rank in sorted(pictures):
        own = pictures[rank]
        for position, (ranks, first) in enumerate(groups):
            ahead, behind = first.recent[-1] in own.recent, own.recent[-1] in first.recent
            if ahead or behind:
                groups[position] = ([*ranks, rank], first if behind else own)
                break
        else:
            groups.append(([rank], own))
    return groups


def row(blocks: Sequence[str]) -> str:
    """Return blocks of HTML beside each other, up to four in a line."""
    if not blocks:
        return ""
    shares = min(4, math.isqrt(len(blocks) - 1) + 1)
    return (
        f'<div style="display: grid; grid-template-columns: repeat({shares}, minmax(0, max-content)'
        f'); gap: 8px 16px; padding-top: 6px">'
        + "".join(f'<div style="min-width: 0">{block}</div>' for block in blocks)
        + "</div>"
    )


def note(text: str) -> str:
    """Return a sentence as HTML, in the grey of what goes away."""
    return f'<div style="color: var(--jp-ui-font-color2, #757575)">{escape(text)}</div>'


def _image(bundle: Bundle) -> str:
    """Return a picture as HTML, or a note in place of one that is too large to be sent often."""
    characters = len(rich_html.source(bundle))
    if characters > LARGEST:
        return f"<i>a picture of {characters / 1e6:.0f} MB, shown when the cell has ended</i>"
    return rich_html.image(bundle)
