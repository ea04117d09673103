"""Figures say in text what they show."""

import io

import matplotlib.image
import numpy as np
import pytest
import torch

from labkit.figures import before_after, rank_colour, tensors
from labkit.figures.style import COMBINED


def pixels(picture):
    return matplotlib.image.imread(io.BytesIO(picture.png))


def test_the_text_has_every_rank_and_value():
    picture = before_after(
        [torch.tensor([1.0]), torch.tensor([2.5])], [torch.tensor([3.5])] * 2, "add"
    )
    assert repr(picture) == "add\nrank 0: [1] → [3.5]\nrank 1: [2.5] → [3.5]"
    data, metadata = picture._repr_mimebundle_()
    assert data["text/plain"] == picture.text == metadata["image/png"]["alt"]


def test_lists_and_nothing():
    picture = before_after([[np.array([0.0]), np.array([1.0])], None], [np.array([0.0]), 1.0])
    assert repr(picture) == "rank 0: [0] [1] → [0]\nrank 1: – → [1]"


def test_boxes_have_the_colour_of_the_rank_that_held_the_value():
    moved = before_after([1.0, 2.0], [2.0, 1.0])
    mixed = before_after([1.0, 2.0], [3.0, 3.0])
    grey = matplotlib.colors.to_rgb(COMBINED)

    def has(picture, colour):
        near = np.abs(pixels(picture)[..., :3] - np.array(colour)).max(axis=-1) < 0.02
        return near.sum() > 200

    for rank in (0, 1):
        assert has(moved, matplotlib.colors.to_rgb(rank_colour(rank)))
    assert has(mixed, grey)
    assert not has(moved, grey)


def test_owners_leave_out_values_that_several_ranks_hold():
    rows = [tensors._pieces(np.array(v)) for v in ([1.0, 5.0], [2.0, 5.0])]
    assert tensors._owners(rows) == {"1": 0, "2": 1}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ([1.0], [1.0, 2.0], "before has 1 ranks, after 2"),
        ([np.arange(17.0)], [1.0], "a rank holds 17 values; a picture shows at most 16"),
    ],
)
def test_what_does_not_fit_is_refused(before, after, message):
    with pytest.raises(ValueError, match=message):
        before_after(before, after)
