"""The wheel alone: every command from an environment where the checkout is not, in any folder.

Its environment has labkit from the wheel and everything else from the one that runs the tests, so
nothing is downloaded. One more environment has the core alone, as `pip install torch-labkit` makes
it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from labkit.course import delivery
from tests.browser.server import course_server
from tests.support.conda_versions import ROOT

pytestmark = pytest.mark.slow
FIRST = "00_start_here.ipynb"
#: Where, below share/, JupyterLab finds the extension that gives figures their alt text.
EXTENSION = Path("jupyter/labextensions/labkit")


@dataclass
class Installed:
    """An environment with labkit's wheel in it."""

    venv: Path

    @property
    def labkit(self) -> str:
        """The command that the wheel has installed."""
        return str(self.venv / "bin" / "labkit")

    def run(self, *command: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of this environment in some folder; the checkout is not on its path."""
        variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            command,
            cwd=folder,
            env=variables,
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def ask(self, expression: str, folder: Path) -> str:
        """Evaluate an expression about labkit in a Python of this environment."""
        code = f"import labkit; from labkit.course import material; print({expression})"
        done = self.run(str(self.venv / "bin" / "python"), "-c", code, folder=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    base = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", base]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = base.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel, without a network."""
    venv = tmp_path_factory.mktemp("wheel") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    # The rest comes from this environment, whose own .pth files (the checkout's among them) are
    # not read: Python reads those of its site folders only.
    inside = next(venv.glob("lib/python*/site-packages"))
    (inside / "rest.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (venv / "etc").symlink_to(Path(sys.prefix, "etc"))  # JupyterLab's settings
    borrow(Path(sys.prefix, "share"), venv / "share", but=EXTENSION)  # its pages and extensions
    uv = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps"]
    subprocess.run([*uv, "--python", venv / "bin" / "python", wheel], check=True, env={
        **os.environ, "UV_LINK_MODE": "copy"})  # fmt: skip
    return Installed(venv)


def borrow(source: Path, target: Path, *, but: Path) -> None:
    """Make a folder of links to what ``source`` has, but for one path, which the wheel brings."""
    target.mkdir()
    for entry in source.iterdir():
        if len(but.parts) > 1 and entry.name == but.parts[0]:
            borrow(entry, target / entry.name, but=Path(*but.parts[1:]))
        elif entry.name != but.name:
            (target / entry.name).symlink_to(entry)


def notebook_of(installed: Installed, folder: Path) -> str:
    return f"{installed.ask('material.root()', folder)}/notebooks/{FIRST}"


def test_labkit_is_the_wheels_and_has_the_course(installed: Installed, tmp_path: Path) -> None:
    inside = str(installed.venv)
    assert installed.ask("labkit.__file__", tmp_path).startswith(inside)
    assert installed.ask("material.root()", tmp_path).startswith(inside)


def test_jupyterlab_finds_the_extension_for_alt_text(installed: Installed, tmp_path: Path) -> None:
    python = str(installed.venv / "bin" / "python")
    done = installed.run(python, "-m", "jupyterlab.labextensions", "list", folder=tmp_path)
    assert re.search(r"labkit v1.*enabled.*OK", done.stdout + done.stderr)
    assert (installed.venv / "share" / EXTENSION / "package.json").is_file()
    assert not (installed.venv / "share" / EXTENSION).is_symlink()


def test_new_gives_the_same_course_as_the_checkout(installed: Installed, tmp_path: Path) -> None:
    done = installed.run(installed.labkit, "new", "x", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    delivery.new_course(tmp_path / "oracle")
    assert contents(tmp_path / "x") == contents(tmp_path / "oracle")
    assert (tmp_path / "x" / "notebooks" / FIRST).is_file()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_lab_serves_the_course_from_an_empty_folder(installed: Installed, tmp_path: Path) -> None:
    command = (installed.labkit, "lab", "--no-browser", "--port", "0")
    with course_server(tmp_path, command=command) as server:
        url = urlsplit(server.url)
        address = f"http://127.0.0.1:{url.port}/api/contents/notebooks?{url.query}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            listed = {entry["name"] for entry in json.load(answer)["content"]}
    assert FIRST in listed
    assert (tmp_path / "work" / "data").is_dir()


def test_the_first_notebook_runs(installed: Installed, tmp_path: Path) -> None:
    notebook = notebook_of(installed, tmp_path)
    done = installed.run(installed.labkit, "run", notebook, "--output", "done.ipynb",
                         folder=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "done.ipynb").is_file()


def test_the_first_notebook_shows_what_is_stored(installed: Installed, tmp_path: Path) -> None:
    notebook = notebook_of(installed, tmp_path)
    done = installed.run(installed.labkit, "test", notebook, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_doctor_finds_what_it_needs(installed: Installed, tmp_path: Path) -> None:
    done = installed.run(installed.labkit, "doctor", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "This machine can run the course." in done.stdout


# -- the core alone: pip install torch-labkit ---------------------------------------------------

#: What a notebook shows of each cell, as JSON, run in a kernel of this environment.
NOTEBOOK = """
import json, sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel()
shown = []
try:
    for cell in json.load(sys.stdin):
        texts = []
        def take(message):
            content = message["content"]
            texts.append(content.get("text") or content.get("evalue") or
                         content.get("data", {}).get("text/plain") or "")
        client.execute_interactive(cell, timeout=120, output_hook=take)
        shown.append("".join(texts))
finally:
    client.stop_channels()
    manager.shutdown_kernel()
print(json.dumps(shown))
"""
CELLS = [
    "import labkit; lab = labkit.start(2)",
    "%%px\nx = torch.ones(1) + rank; dist.all_reduce(x); x.item()",
    "timeline = lab.timeline('dist.all_reduce(x)'); timeline.share('communication') > 0",
    "labkit.figures.before_after([[1]], [[3]], 'x')",
    "timeline",
    "lab.stop()",
]


@pytest.fixture
def core(wheel: Path, tmp_path: Path) -> Iterator[Installed]:
    """Install the wheel with what it requires, at the lock's versions, into an environment of its
    own: from uv's cache, which has all of it since `make setup`."""
    venv = tmp_path / "core"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, venv], check=True)
    install = [*uv, "pip", "install", "--quiet", "--python", venv / "bin" / "python",
               "--constraint", ROOT / "requirements.lock", wheel]  # fmt: skip
    offline = subprocess.run([*install, "--offline"], capture_output=True)
    if offline.returncode:  # somebody has emptied the cache
        subprocess.run(install, check=True)
    yield Installed(venv)
    shutil.rmtree(venv)  # several GB, where the cache is on another disk


def test_the_core_starts_ranks_and_names_the_extra_that_a_figure_needs(
    core: Installed, tmp_path: Path
) -> None:
    python = str(core.venv / "bin" / "python")
    subprocess.run([sys.executable, "-m", "uv", "pip", "check", "--python", python], check=True)
    there = {path.name for path in core.venv.glob("lib/python*/site-packages/*")}
    assert {"torch", "ipyparallel", "labkit"} <= there
    assert there.isdisjoint({"matplotlib", "jupyterlab", "nbval", "pytest", "torchvision"})

    done = core.run(python, "-c", NOTEBOOK, folder=tmp_path, given=json.dumps(CELLS))
    assert done.returncode == 0, done.stderr
    start, px, share, figure, timeline, stop = json.loads(done.stdout.splitlines()[-1])
    assert "ranks 0–1" in px
    assert "3.0" in px
    assert share.endswith("True")
    needs = (
        "A figure needs matplotlib, which is not installed. In a cell: %pip install "
        '"torch-labkit[figures]"'
    )
    assert figure == needs
    assert timeline == f"{needs}Timeline of ranks 0–1\nranks 0–1: 1 × all_reduce"
    assert start == stop == ""

    refused = core.run(core.labkit, "lab", folder=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("labkit: labkit lab needs jupyterlab, ")
    assert refused.stderr.endswith('pip install "torch-labkit[course]"\n')
