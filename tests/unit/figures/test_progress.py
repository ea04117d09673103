"""The figure of a class: its words, what it refuses, and room for the largest class."""

import pytest
from matplotlib.text import Text

import labkit
from labkit.figures.progress import MAX_LEARNERS, MAX_NOTEBOOKS


def test_what_it_refuses():
    for passed, exercises in (({}, {"00": 4}), ({"ada": []}, {})):
        with pytest.raises(labkit.UsageError, match="at least one learner and one notebook"):
            labkit.figures.class_progress(passed, exercises)
    with pytest.raises(labkit.UsageError, match="ada has 1 numbers for 2"):
        labkit.figures.class_progress({"ada": [1]}, {"00": 4, "01": 6})
    many = {str(i): [1] for i in range(MAX_LEARNERS + 1)}
    with pytest.raises(labkit.UsageError, match="41 learners; a figure shows up to 40"):
        labkit.figures.class_progress(many, {"00": 4})


def test_the_largest_one_is_whole_and_nothing_overlaps(drawn):
    numbers = {f"{i:02}": 10 for i in range(MAX_NOTEBOOKS)}
    passed = {f"{i} is a very long name {i}": [10] * MAX_NOTEBOOKS for i in range(MAX_LEARNERS)}
    labkit.figures.class_progress(passed, numbers, at=dict.fromkeys(passed, "03"), title="A class")
    figure = drawn[0]
    assert figure.get_figwidth() <= 8
    extents = [
        text.get_window_extent()
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip()
    ]
    assert len(extents) > MAX_LEARNERS * MAX_NOTEBOOKS
    assert all(figure.bbox.padded(1).contains(*e.min) for e in extents)
    for i, one in enumerate(extents):
        assert not any(one.overlaps(other) for other in extents[i + 1 :])


def test_any_name_can_be_drawn(drawn):
    names = ["$x_{$", "李", "Zoë", "a rather long name indeed"]
    labkit.figures.class_progress({name: [1] for name in names}, {"00": 4})
    shown = [label.get_text() for label in drawn[0].axes[0].get_yticklabels()]
    assert shown == ["$x_{$", "�", "Zoë", "a rather long nam…"]
