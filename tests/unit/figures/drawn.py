"""Look at what a figure function has drawn: its words, what is below them, and the contrast."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from labkit.figures.style import CARD, MAX_WIDTH

from ..test_rank_colours import contrast


def draw(monkeypatch: pytest.MonkeyPatch, module: ModuleType, call: Callable[[], object]) -> Figure:
    """Return the figure that ``call`` gives to ``module.Picture``, drawn."""
    figures: list[Figure] = []
    picture = module.Picture

    def keep(figure: Figure, *text: str) -> object:
        figures.append(figure)
        return picture(figure, *text)

    monkeypatch.setattr(module, "Picture", keep)
    call()
    (figure,) = figures
    figure.draw_without_rendering()
    return figure


def words(figure: Figure) -> list[Text]:
    """Return all texts that are to be seen."""
    return [
        text
        for text in figure.findobj(Text)
        if text.get_text().strip() and text.get_visible() and text.get_window_extent().width > 0
    ]


def check_words(figure: Figure) -> None:
    """Assert that all words can be read: none on another, none outside, none too pale."""
    found = words(figure)
    extents = [text.get_window_extent() for text in found]
    for i, one in enumerate(extents):
        for j in range(i):
            other = extents[j]
            apart = (
                one.x1 <= other.x0 + 1 or other.x1 <= one.x0 + 1
                or one.y1 <= other.y0 + 2 or other.y1 <= one.y0 + 2
            )  # fmt: skip
            assert apart, (found[i].get_text(), found[j].get_text())
    assert figure.get_tightbbox().width <= MAX_WIDTH
    for text, extent in zip(found, extents, strict=True):
        assert 0 <= extent.x0 < extent.x1 <= figure.bbox.width, text.get_text()
        ratio = contrast(text.get_color(), below(figure, extent))
        assert ratio >= 4.5, (text.get_text(), text.get_color(), ratio)


def below(figure: Figure, extent: object) -> str:
    """Return the colour of the topmost box under the middle of some words."""
    middle = np.mean(extent.get_points(), axis=0)  # type: ignore[attr-defined]
    boxes = [
        patch
        for axes in figure.axes
        for patch in axes.patches
        if isinstance(patch, FancyBboxPatch) and patch.get_window_extent().contains(*middle)
    ]
    if not boxes:
        return CARD
    return to_hex(max(boxes, key=lambda patch: patch.get_zorder()).get_facecolor())
