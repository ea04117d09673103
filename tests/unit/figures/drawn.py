"""Look at what a figure function has drawn: its words, what is below them, and the contrast."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
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
    boxes = [
        patch
        for axes in figure.axes
        for patch in sorted(axes.patches, key=lambda patch: patch.get_zorder())
        if isinstance(patch, FancyBboxPatch) and patch.get_facecolor()[3] > 0
    ]
    edges = np.array([box.get_window_extent().get_points() for box in boxes]).reshape(-1, 2, 2)
    for text, extent in zip(found, extents, strict=True):
        middle = extent.mean(axis=0)
        under = ((edges[:, 0] <= middle) & (middle <= edges[:, 1])).all(axis=1).nonzero()[0]
        colour = to_hex(boxes[under[-1]].get_facecolor()) if len(under) else CARD
        ratio = contrast(text.get_color(), colour)
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
