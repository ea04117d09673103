"""Every word of every figure has the contrast that WCAG AA asks for, in its docstring's example."""

import doctest

import pytest

import labkit

from .drawn import check_contrast, words

#: Stands for a lab in the examples.
LAB = {"device": ["cpu"] * 4}
FIGURES = [
    name for name in labkit.figures.__all__
    if getattr(labkit.figures, name).__annotations__.get("return") in ("Picture", "Gallery")
]  # fmt: skip


def draw_example(name):
    """Draw the figures of a function's example."""
    space = {"labkit": labkit, "lab": LAB}
    for example in doctest.DocTestParser().get_examples(getattr(labkit.figures, name).__doc__):
        if not example.options.get(doctest.SKIP):
            exec(compile(example.source, name, "single"), space)


def test_figures_are_found():
    assert {"before_after", "memory", "ring_strip", "processes"} <= set(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_all_words_have_contrast(name, drawn):
    draw_example(name)
    assert drawn
    for figure in drawn:
        assert words(figure)
        check_contrast(figure)
