"""Look at what a figure function has drawn: its words, what is below them, and the contrast."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.text import Text

from labkit.figures.style import CARD, MAX_WIDTH

from ..base.test_rank_colours import contrast


def words(figure: Figure) -> list[Text]:
    """Return all texts that are to be seen."""
    found = figure.findobj(Text)
    return [text for text in found if text.get_text().strip() and text.get_visible()]


def check_words(figure: Figure, *, beyond: bool = False) -> None:
    """Assert that all words can be read: none on another, none too pale, and none ``beyond`` what
    else is drawn, unless that is right."""
    found = words(figure)
    extents = np.array([text.get_window_extent().get_points() for text in found])
    low = np.maximum(extents[:, None, 0], extents[None, :, 0]) + np.array([1, 2])
    high = np.minimum(extents[:, None, 1], extents[None, :, 1])
    on_another = np.triu((low < high).all(axis=-1), 1)
    assert not [(found[i].get_text(), found[j].get_text()) for i, j in np.argwhere(on_another)]
    assert figure.get_tightbbox().width <= MAX_WIDTH
    outside = (extents[:, 0, 0] < 0) | (extents[:, 1, 0] > figure.bbox.width)
    assert beyond or not [found[i].get_text() for i in outside.nonzero()[0]]
    check_contrast(figure)


def check_contrast(figure: Figure) -> None:
    """Assert that all words have the contrast that WCAG AA asks for, on what is below them."""
    pages = [figure.patch, *(axes.patch for axes in figure.axes)]
    boxes = [
        patch
        for patch in figure.findobj(lambda item: isinstance(item, Rectangle | FancyBboxPatch))
        if patch.get_visible() and patch.get_facecolor()[3] > 0.5 and patch not in pages
    ]
    boxes.sort(key=lambda patch: patch.get_zorder())
    extents = [box.get_window_extent() for box in boxes]
    for text in words(figure):
        middle = text.get_window_extent().get_points().mean(axis=0)
        if not figure.bbox.padded(200).contains(*middle):
            continue  # a tick beyond the end of its axis
        own = text.get_bbox_patch()
        below = [b for b, e in zip(boxes, extents, strict=True) if e.contains(*middle)]
        under = [*below, *([own] if own is not None else [])]
        colour = to_hex(under[-1].get_facecolor()) if under else CARD
        ratio = contrast(to_hex(text.get_color()), colour)
        assert ratio >= 4.5, (text.get_text(), text.get_color(), colour, ratio)


def written(figure: Figure) -> list[Text]:
    """Return the words of a chart's axes, but for ticks beyond their ends, which are not drawn."""
    found: list[Text] = []
    for axes in figure.axes:
        for i, limits, ticks in (
            (0, axes.get_xlim(), axes.get_xticklabels()),
            (1, axes.get_ylim(), axes.get_yticklabels()),
        ):
            found += [t for t in ticks if min(limits) <= t.get_position()[i] <= max(limits)]
        legend = axes.get_legend()
        found += [*(legend.get_texts() if legend else ()), *axes.texts]
        found += [axes.xaxis.label, axes.yaxis.label, axes._left_title]  # type: ignore[attr-defined]
    return [item for item in found if item.get_visible() and item.get_text().strip()]


def texts(figure: Figure) -> list[str]:
    """Return the same as strings."""
    return [item.get_text() for item in written(figure)]
