"""The pictures of JupyterLab stay true when they are made small."""

from __future__ import annotations

import io
from pathlib import Path

import nbformat
import numpy as np
from PIL import Image

from labkit.base.rank_names import RANK_COLOURS
from labkit.course import edition
from tests.browser.screenshots import CHECK, OVERVIEW, RIGHT, SCENES, STUB, WRONG, write_small
from tests.support.conda_versions import ROOT

NOTEBOOK_00 = ROOT / "notebooks" / "00_start_here.ipynb"
#: Of what fills a picture: greys of text, and the colours of bars with their soft edges.
FILLING = ("#000000", "#1A3E85", "#90C0EA", "#B92F28", "#9966C4", "#444444")


def rgb(colour: str) -> np.ndarray:
    """Return the red, green and blue of a colour."""
    return np.frombuffer(bytes.fromhex(colour[1:]), np.uint8).astype(float)


def test_few_colours_keep_those_of_small_things(tmp_path: Path) -> None:
    """A rank's label has some pixels among a million others."""
    to_white = np.linspace(0, 1, 600)[None, :, None]
    bars = [rgb(colour) * (1 - to_white) + 255 * to_white for colour in FILLING]
    pixels = np.concatenate([np.repeat(bar, 200, axis=0) for bar in bars]).astype(np.uint8)
    labels = {colour: (50 + 100 * i, 300) for i, colour in enumerate(RANK_COLOURS)}
    for colour, (y, x) in labels.items():
        pixels[y : y + 4, x : x + 4] = rgb(colour)
    png = io.BytesIO()
    Image.fromarray(pixels).save(png, "PNG")
    write_small(png.getvalue(), tmp_path / "small.png")
    with Image.open(tmp_path / "small.png") as picture:
        small = np.asarray(picture.convert("RGB")).astype(float)
    for colour, (y, x) in labels.items():
        assert np.abs(small[y, x] - rgb(colour)).max() < 24, colour


def sources() -> list[str]:
    """Return the sources of notebook 00's cells as a learner gets them."""
    nb = edition.learners(nbformat.read(NOTEBOOK_00, as_version=4))
    return [cell.source for cell in nb.cells]


def test_every_stored_picture_can_be_made_again() -> None:
    stored = (ROOT / "notebooks" / "images").glob("*.png")
    assert {path.stem for path in stored} == {OVERVIEW, *SCENES}


def test_the_board_is_of_a_cell_of_notebook_00() -> None:
    assert SCENES["board"].code in sources()


def test_the_exercise_is_the_first_of_notebook_00() -> None:
    """Its stub, with a wrong line and the right one in the place of the dots."""
    at = sources().index(STUB)
    assert sources()[at + 1] == CHECK
    head = STUB.removesuffix("...")
    assert WRONG.startswith(head)
    assert RIGHT.startswith(head)
    assert RIGHT.removeprefix(head) in edition.solution("00-1")
