"""Every word of every figure has the contrast that WCAG AA asks for, in its docstring's example."""

import doctest

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.text import Text

import labkit
from labkit.figures.style import CARD

from ..base.test_rank_colours import contrast

#: Stands for a lab in the examples.
LAB = {"device": ["cpu"] * 4}
FIGURES = [
    name for name in labkit.figures.__all__
    if getattr(labkit.figures, name).__annotations__.get("return") == "Picture"
]  # fmt: skip


def draw_example(name):
    """Draw the figures of a function's example."""
    space = {"labkit": labkit, "lab": LAB}
    for example in doctest.DocTestParser().get_examples(getattr(labkit.figures, name).__doc__):
        if not example.options.get(doctest.SKIP):
            exec(compile(example.source, name, "single"), space)


def ground(figure, extent):
    """Return the colour below the middle of some words; the card's, if nothing is there."""
    pages = [figure.patch, *(axes.patch for axes in figure.axes)]
    boxes = [
        patch
        for patch in figure.findobj(lambda item: isinstance(item, Rectangle | FancyBboxPatch))
        if patch.get_visible() and patch.get_facecolor()[3] > 0.5 and patch not in pages
    ]
    boxes.sort(key=lambda patch: patch.get_zorder())
    middle = np.mean(extent.get_points(), axis=0)
    below = [box for box in boxes if box.get_window_extent().contains(*middle)]
    return to_hex(below[-1].get_facecolor()) if below else CARD


def test_figures_are_found():
    assert {"before_after", "memory", "ring_strip", "processes"} <= set(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_all_words_have_contrast(name, drawn):
    draw_example(name)
    assert drawn
    for figure in drawn:
        seen = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
        assert seen
        for text in seen:
            extent = text.get_window_extent()
            if not figure.bbox.padded(200).contains(*np.mean(extent.get_points(), axis=0)):
                continue  # a tick beyond the end of its axis
            if (own := text.get_bbox_patch()) is not None:
                colour = to_hex(own.get_facecolor())
            else:
                colour = ground(figure, extent)
            ratio = contrast(to_hex(text.get_color()), colour)
            assert ratio >= 4.5, (text.get_text(), text.get_color(), colour)
