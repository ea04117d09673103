"""Serve a fresh copy of the course with ``labkit lab``, for a browser to open."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sysconfig
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import psutil

LABKIT = Path(sysconfig.get_path("scripts")) / "labkit"
START_SECONDS = 60
STOP_SECONDS = 30

#: What differs from JupyterLab as a learner finds it, by plugin.
SETTINGS: dict[str, dict[str, object]] = {
    # Cells outside the window are in the page too: that is where the tests look.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    # Neither a question about news nor an answer from the internet lies over the page.
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


@dataclass
class CourseServer:
    """A JupyterLab that ``labkit lab`` started."""

    process: subprocess.Popen[str]
    folder: Path  #: the copy of the course
    url: str  #: the address that ``labkit lab`` printed, token included

    def address(self, notebook: str) -> str:
        """Return the address of another notebook, in a JupyterLab without any open tab."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}/lab/tree/notebooks/{notebook}?{parts.query}&reset"

    def notebook(self, name: str) -> Path:
        """Return the file of a notebook."""
        return self.folder / "notebooks" / name

    def new_notebook(self, name: str, *cells: str) -> Path:
        """Write a notebook of code cells that have not run."""
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        notebook.cells = [nbformat.v4.new_code_cell(code) for code in cells]
        nbformat.write(notebook, self.notebook(name))
        return self.notebook(name)

    def family(self) -> list[psutil.Process]:
        """List the server, its kernels and their ranks."""
        server = psutil.Process(self.process.pid)
        return [server, *server.children(recursive=True)]


@contextlib.contextmanager
def course_server(
    base: Path, settings: Mapping[str, Mapping[str, object]] | None = None
) -> Iterator[CourseServer]:
    """Start ``labkit lab`` with a home, settings and a course of its own below ``base``.

    ``settings`` of plugins are added to ``SETTINGS``.

    Raises
    ------
    AssertionError
        If it does not start, or if a process of it is still there at the end.
    """
    environment = _environment(base)
    _write_settings(Path(environment["JUPYTER_CONFIG_DIR"]), {**SETTINGS, **(settings or {})})
    command = [str(LABKIT), "lab", str(base / "work"), "--no-browser", "--port", "0"]
    command += ["--", "--LabApp.expose_app_in_browser=True"]  # ``jupyterapp``, for the driver
    log = base / "log"
    with open(log, "w") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, text=True
        )
    try:
        yield CourseServer(process, base / "work", _printed_url(process, log))
    finally:
        left = _end(process)
    assert not left, f"left after JupyterLab has ended: {left}"


def _environment(base: Path) -> dict[str, str]:
    # With CI or LABKIT_LIVE set, labkit takes it that nobody looks on.
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("JUPYTER") and name not in ("CI", "LABKIT_LIVE")
    }
    # Fonts that matplotlib has found once need not be found again.
    kept.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    folders = {
        "HOME": base / "home",
        "JUPYTER_CONFIG_DIR": base / "config",
        "JUPYTER_RUNTIME_DIR": base / "runtime",
    }
    for folder in folders.values():
        folder.mkdir()
    return {**kept, **{name: str(folder) for name, folder in folders.items()}}


def _write_settings(config: Path, settings: Mapping[str, Mapping[str, object]]) -> None:
    for plugin, values in settings.items():
        path = config / "lab" / "user-settings" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))


def _printed_url(process: subprocess.Popen[str], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while not (found := re.search(r"http://127\.0\.0\.1:\S+", log.read_text())):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return found[0]


def _end(process: subprocess.Popen[str]) -> list[str]:
    """End the server as a terminal would; kill and name what is there after that."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        family.append(psutil.Process(process.pid))
    _, alive = psutil.wait_procs(family, STOP_SECONDS)
    left = []
    for survivor in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.append(" ".join(survivor.cmdline()))
            survivor.kill()
    process.wait()
    return left
