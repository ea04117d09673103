"""The ranks' colours can be read and told apart, also by colour-blind readers."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from labkit.base.rank_names import RANK_COLOURS, rank_colour
from labkit.figures.style import COMBINED

#: Machado, Oliveira and Fernandes 2009, table 1, severity 1.0; they act on linear RGB.
SIGHTS = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
#: Ottosson's OKLab: distances in it are about what the eye sees; 0.02 is just noticeable.
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def linear(colour):
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """WCAG's contrast ratio."""
    high, low = sorted((linear(c) @ [0.2126, 0.7152, 0.0722] for c in (one, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def seen(colour, sight):
    return TO_LAB @ np.cbrt(TO_CONES @ np.clip(sight @ linear(colour), 0, 1))


@pytest.mark.parametrize("background", ["#FFFFFF", "#111111"], ids=["light", "dark"])
def test_readable_as_text_in_both_themes(background):
    assert min(contrast(c, background) for c in RANK_COLOURS) >= 3


@pytest.mark.parametrize("sight", SIGHTS.values(), ids=SIGHTS)
def test_told_apart(sight):
    def nearest(colours):
        pairs = combinations(colours, 2)
        return min(np.linalg.norm(seen(a, sight) - seen(b, sight)) for a, b in pairs)

    assert nearest(RANK_COLOURS[:4]) >= 0.095
    assert nearest([*RANK_COLOURS, COMBINED]) >= 0.08


def test_repeats():
    assert rank_colour(len(RANK_COLOURS) + 1) == rank_colour(1) == RANK_COLOURS[1]
