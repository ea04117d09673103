"""Make the pictures of JupyterLab: ``python -m tests.browser.screenshots [NAME …]``.

Each is a real cell that has run on real ranks: ``NAME.png``, twice as sharp as the page and with
256 colours, so that it stays small. A cell that is filmed also makes ``NAME.webp``, which plays
once and ends with that picture, and both once more for dark pages: ``NAME-dark``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser

from tests.browser import film
from tests.browser.chromium import chromium, window
from tests.browser.page import NotebookPage
from tests.browser.server import CourseServer, course_server
from tests.support.conda_versions import ROOT

OUT = ROOT / "build" / "screenshots"
#: Of the window, in the page's own pixels; the cells in it are some 80 narrower.
WIDTH, HEIGHT = 1000, 1600
#: Of the window of a film: all that it shows, again and again, costs time.
FILM_HEIGHT = 640

#: Debian's default font for a page's text is a wide one.
FONT = "Liberation Sans"
SETTINGS = {
    "@jupyterlab/apputils-extension/themes": {
        "overrides": {"ui-font-family": FONT, "content-font-family": FONT}
    }
}

#: The themes of JupyterLab in which a cell is filmed, by what is added to the picture's name.
#: The light one stays for the scenes after it.
THEMES = {"-dark": "JupyterLab Dark", "": "JupyterLab Light"}
START = "import labkit\n\nlab = labkit.start(4)"


@dataclass(frozen=True)
class Scene:
    """A cell to show, and what has to run before it."""

    code: str
    before: tuple[str, ...] = ()
    below: tuple[str, ...] = ()  #: cells that run after it and are in the picture too
    shows: str = ""  #: take the picture while the cell runs, when this pattern is on the page
    filmed: bool = False  #: show how it runs, too, on light and on dark pages


TRAINING = """%%px
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import labkit

train_set = labkit.datasets.mnist(train=True, size="subset")
images = torch.stack([image for image, _ in train_set])
labels = torch.tensor([label for _, label in train_set])
features = [nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()]
model = DDP(nn.Sequential(*features, nn.Flatten(), nn.Linear(32 * 6 * 6, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(epoch, steps=None):
    torch.manual_seed(epoch)
    order = torch.randperm(len(labels))[rank::world_size]
    for batch in order.split(25)[:steps]:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
    return loss.item()"""

#: Exercise 00-3 as a learner may solve it.
NEIGHBOUR = '''%%px
def neighbour() -> int:
    """Return the number of the next rank.

    >>> neighbour()  # on rank 1 of 4
    2
    """
    # Your turn: about 1 line.
    {}'''
STUB = NEIGHBOUR.format("...")
WRONG = NEIGHBOUR.format("return rank + 1")
RIGHT = NEIGHBOUR.format("return (rank + 1) % world_size")
CHECK, HINT = 'labkit.check("00-3")', "labkit.hint()"

SCENES: dict[str, Scene] = {
    # Rank 2 takes long enough for the board to show who waits, and that labkit waits with them.
    "deadlock": Scene(
        "%%px\n"
        "x = torch.tensor([rank + 1.0])\n"
        "if rank == 2:\n"
        "    time.sleep(3)  # busy elsewhere\n"
        "else:\n"
        "    dist.all_reduce(x)",
        before=("%px import time",),
        filmed=True,
    ),
    # The cell of notebook 00 that this is a picture of; test_screenshots compares them.
    "board": Scene(
        "%%px\n"
        "import time\n"
        "\n"
        "for step in range(3):\n"
        "    time.sleep(0.5)\n"
        '    print("step", step)\n'
        "if rank == 3:\n"
        "    time.sleep(2)\n"
        "dist.barrier()",
        shows="step 2.*rank 0.*waiting.*rank 2.*waiting.*rank 3.*running",
    ),
    "exercise": Scene(WRONG, below=(CHECK, HINT, RIGHT, CHECK)),
    "timeline": Scene(
        'lab.timeline("train(0, steps=3)")',
        before=(TRAINING, "%%px\n_ = train(0, steps=3)"),
    ),
}


class Studio:
    """Takes pictures of cells."""

    def __init__(self, server: CourseServer, browser: Browser, out: Path) -> None:
        self.server, self.browser, self.out = server, browser, out

    def cell(self, name: str, scene: Scene) -> None:
        """Run a scene in a notebook of its own and show its cell."""
        file = self.server.new_notebook(f"{name}.ipynb", START)
        with window(self.browser, WIDTH, HEIGHT, sharp=True) as context:
            notebook = NotebookPage(context, self.server.address(file.name), file)
            notebook.hide_sidebar()
            notebook.run(0)
            for code in scene.before:
                notebook.run_new(code)
            at = last = notebook.append(scene.code)
            notebook.start(at)
            if scene.shows:
                notebook.wait_text(at, scene.shows)
                self._keep(name, film.opened(notebook.picture_of_cells(at, at)))
                notebook.interrupt()
            notebook.wait_ended(at)
            for code in scene.below:
                last = notebook.run_new(code)
            if not scene.shows:
                self._keep(name, film.opened(notebook.picture_of_cells(at, last)))
            notebook.run_new("lab.stop()")

    def film(self, name: str, scene: Scene) -> None:
        """Run a scene in each theme, in a notebook of its own; keep how it ran and how it ended."""
        for suffix, theme in THEMES.items():
            file = self.server.new_notebook(f"{name}{suffix}.ipynb", START)
            with window(self.browser, WIDTH, FILM_HEIGHT, sharp=True) as context:
                notebook = NotebookPage(context, self.server.address(file.name), file)
                notebook.hide_sidebar()
                notebook.choose_theme(theme)
                notebook.run(0)
                for code in scene.before:
                    notebook.run_new(code)
                shots = film.record(notebook, notebook.append(scene.code))
                notebook.run_new("lab.stop()")
            self._keep(name + suffix, shots[-1].picture)
            path = self.out / f"{name}{suffix}.webp"
            film.write(shots, path)
            self._report(path)

    def _keep(self, name: str, picture: Image.Image) -> None:
        path = self.out / f"{name}.png"
        write_small(picture, path)
        self._report(path)

    @staticmethod
    def _report(path: Path) -> None:
        print(f"{path}  {path.stat().st_size // 1024} KiB")


def write_small(picture: Image.Image, path: Path) -> None:
    """Write a picture with 256 colours: less than half the size, and nobody sees it."""
    # The other methods take colours that are on few pixels, such as a label's, for others.
    # Two rounds of k-means bring back the exact shade of what is large.
    method = Image.Quantize.MAXCOVERAGE
    few = picture.quantize(256, method, kmeans=2, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def main() -> int:
    """Make the pictures that are asked for; 1 if one of them cannot be made yet."""
    names = list(SCENES)
    parser = argparse.ArgumentParser(prog="python -m tests.browser.screenshots")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--out", type=Path, default=OUT, help="folder (default: %(default)s)")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(names):
        parser.error(f"there is no {', '.join(sorted(unknown))}: {', '.join(names)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    with (
        tempfile.TemporaryDirectory() as base,
        course_server(Path(base), SETTINGS) as server,
        chromium() as browser,
    ):
        studio = Studio(server, browser, arguments.out)
        for name in filter(set(arguments.names or names).__contains__, names):
            try:
                scene = SCENES[name]
                (studio.film if scene.filmed else studio.cell)(name, scene)
            except AssertionError as error:
                failed = 1
                print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
