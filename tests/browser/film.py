"""Film a cell while it runs, as an animation that plays once and ends with what the cell shows."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageChops

from tests.browser.page import CELL_SECONDS, NotebookPage

#: How long the cell is to be seen before it runs.
READ_MS = 1200
#: A browser goes on showing the last picture of an animation that has ended.
LAST_MS = 100


@dataclass(frozen=True)
class Shot:
    """A picture, and when it was taken, in seconds."""

    taken: float
    picture: Image.Image


def opened(png: bytes) -> Image.Image:
    """Return a screenshot as a picture."""
    with Image.open(io.BytesIO(png)) as picture:
        return picture.convert("RGB")


def record(notebook: NotebookPage, at: int) -> list[Shot]:
    """Run the last cell and take pictures of it: before it runs, while it does, when it has ended.

    All have the size that the cell has in the end.
    """
    cells = [notebook.cell(at)]
    clip = notebook.box_of_cells(cells)
    size = notebook.page.viewport_size
    assert size is not None
    clip["height"] = size["height"] - clip["y"]
    shots: list[Shot] = []

    def take() -> None:
        png = notebook.picture(clip)
        shots.append(Shot(time.monotonic(), opened(png)))

    with notebook.alone(cells):
        notebook.choose_quietly(0)
        take()
        notebook.start(at)
        notebook.choose_quietly(0)
        until = time.monotonic() + CELL_SECONDS
        while not re.fullmatch(r"\[\d+\]:", notebook.prompt(at)):
            assert time.monotonic() < until, f"cell {at} has not ended"
            take()
        take()
        in_the_end = notebook.box_of_cells(cells)
    assert in_the_end["y"] == clip["y"], "the page has scrolled"
    assert in_the_end["height"] <= clip["height"], "the window is too low for the cell"
    sharpness = shots[0].picture.width / clip["width"]
    corner = (shots[0].picture.width, round(in_the_end["height"] * sharpness))
    return [Shot(shot.taken, shot.picture.crop((0, 0, *corner))) for shot in shots]


def write(shots: Sequence[Shot], path: Path) -> None:
    """Write pictures as a WebP animation in the time in which they were taken.

    It plays once, because a page that moves for longer than five seconds needs a pause button (WCAG
    2.2, criterion 2.2.2).
    """
    frames, milliseconds = [shots[0].picture], [READ_MS]
    ends = [*(shot.taken for shot in shots[2:]), shots[-1].taken + LAST_MS / 1000]
    for shot, end in zip(shots[1:], ends, strict=True):
        stays = round(1000 * (end - shot.taken))
        if ImageChops.difference(shot.picture, frames[-1]).getbbox() is None:
            milliseconds[-1] += stays
        else:
            frames.append(shot.picture)
            milliseconds.append(stays)
    frames[0].save(
        path, save_all=True, append_images=frames[1:], duration=milliseconds, loop=1,
        lossless=True, method=6, minimize_size=True,
    )  # fmt: skip
