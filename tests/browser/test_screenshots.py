"""The pictures of JupyterLab stay true when they are made small."""

from __future__ import annotations

from pathlib import Path

import nbformat
import numpy as np
from PIL import Image

from labkit.base.rank_names import RANK_COLOURS
from labkit.course import edition
from tests.browser.film import LAST_MS, READ_MS, Shot, write
from tests.browser.screenshots import CHECK, RIGHT, SCENES, STUB, THEMES, WRONG, write_small
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
    write_small(Image.fromarray(pixels), tmp_path / "small.png")
    with Image.open(tmp_path / "small.png") as picture:
        small = np.asarray(picture.convert("RGB")).astype(float)
    for colour, (y, x) in labels.items():
        assert np.abs(small[y, x] - rgb(colour)).max() < 24, colour


def sources() -> list[str]:
    """Return the sources of notebook 00's cells as a learner gets them."""
    nb = edition.learners(nbformat.read(NOTEBOOK_00, as_version=4))
    return [cell.source for cell in nb.cells]


def test_every_stored_picture_can_be_made_again() -> None:
    stored = (ROOT / "notebooks" / "images").iterdir()
    names = set()
    for name, scene in SCENES.items():
        if scene.filmed:
            names |= {f"{name}{theme}.{kind}" for theme in THEMES for kind in ("png", "webp")}
        else:
            names.add(f"{name}.png")
    assert {path.name for path in stored} == names


def test_an_animation_has_the_time_of_the_run_and_stops_at_its_end(tmp_path: Path) -> None:
    white, grey, black = (Image.new("RGB", (8, 8), colour) for colour in ("#fff", "#888", "#000"))
    shots = [Shot(10.0, white), Shot(20.0, white), Shot(20.5, grey), Shot(21.5, grey)]
    write([*shots, Shot(22.0, black)], tmp_path / "film.webp")
    with Image.open(tmp_path / "film.webp") as animation:
        seen = []
        for number in range(animation.n_frames):
            animation.seek(number)
            seen.append((animation.convert("L").getpixel((0, 0)), animation.info["duration"]))
        assert seen == [(255, READ_MS + 500), (0x88, 1500), (0, LAST_MS)]
        assert animation.info["loop"] == 1


def test_the_board_is_of_a_cell_of_notebook_00() -> None:
    assert SCENES["board"].code in sources()


def test_the_exercise_is_one_of_notebook_00() -> None:
    """Its stub, with a wrong line and the right one in the place of the dots."""
    at = sources().index(STUB)
    assert sources()[at + 1] == CHECK
    head = STUB.removesuffix("...")
    assert WRONG.startswith(head)
    assert RIGHT.startswith(head)
    assert RIGHT.removeprefix(head) in edition.solution("00-3")
