"""Serve a fresh copy of the course with ``labkit lab``, as a learner's terminal does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import psutil
from nbformat import NotebookNode

from tests.support.conda_versions import ROOT
from tests.support.events import until

LABKIT = Path(sysconfig.get_path("scripts")) / "labkit"
#: As the tests start it, with a free port and no browser of its own.
QUIETLY = (str(LABKIT), "lab", "work", "--no-browser", "--port", "0")
START_SECONDS = 120
STOP_SECONDS = 120

#: What differs from JupyterLab as a learner finds it, by plugin.
SETTINGS: dict[str, dict[str, object]] = {
    # Cells outside the window are in the page too: that is where the tests look.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    # Neither a question about news nor an answer from the internet lies over the page.
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
#: ``jupyterapp`` in the page, for the driver.
CONFIG = {"LabApp": {"expose_app_in_browser": True}}
#: What the learner's browser is here: it notes the address that it is to open.
BROWSER = """#!/bin/sh
here=$(dirname "$0")
printf %s "$1" > "$here/opened.part"
mv "$here/opened.part" "$here/opened"
"""


@dataclass
class CourseServer:
    """A JupyterLab that ``labkit lab`` started."""

    process: subprocess.Popen[str]
    base: Path  #: the folder of the command; all else is in it
    url: str  #: the address that ``labkit lab`` printed, token included

    @property
    def folder(self) -> Path:
        """The copy of the course."""
        return self.base / "work"

    @property
    def home(self) -> Path:
        """The learner's home."""
        return self.base / "home"

    @property
    def runtime(self) -> Path:
        """Where JupyterLab keeps what its kernels listen on."""
        return self.base / "runtime"

    @property
    def said(self) -> str:
        """What the terminal shows."""
        return (self.base / "log").read_text()

    @property
    def opened(self) -> str:
        """The address that the learner's browser was told to open; empty if none was."""
        path = self.base / "opened"
        return path.read_text() if path.exists() else ""

    def address(self, notebook: str) -> str:
        """Return the address of another notebook, in a JupyterLab without any open tab."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}/lab/tree/notebooks/{notebook}?{parts.query}&reset"

    def notebook(self, name: str) -> Path:
        """Return the file of a notebook."""
        return self.folder / "notebooks" / name

    def new_notebook(self, name: str, *cells: str | NotebookNode) -> Path:
        """Write a notebook of code cells that have not run."""
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        notebook.cells = [
            nbformat.v4.new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells
        ]
        nbformat.write(notebook, self.notebook(name))
        return self.notebook(name)

    def family(self) -> list[psutil.Process]:
        """List the server, its kernels and their ranks: whoever it started or has its home."""
        family = set()
        with contextlib.suppress(psutil.NoSuchProcess):
            server = psutil.Process(self.process.pid)
            family = {server, *server.children(recursive=True)}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == str(self.home):
                    family.add(process)
        return list(family)


def make_lab() -> tuple[list[str], dict[str, str]]:
    """Return the command of ``make lab``, and the variables that make sets for it."""
    makefile = (ROOT / "Makefile").read_text()
    (recipe,) = re.findall(r"^lab:.*\n\t@(.*)\n(?!\t)", makefile, re.MULTILINE)
    variables = dict(re.findall(r"^export (\w+) := (.*)$", makefile, re.MULTILINE))
    return shlex.split(recipe.replace("$(BIN)", str(LABKIT.parent))), variables


@contextlib.contextmanager
def course_server(
    base: Path,
    settings: Mapping[str, Mapping[str, object]] | None = None,
    *,
    command: Sequence[str] = QUIETLY,
    variables: Mapping[str, str] | None = None,
) -> Iterator[CourseServer]:
    """Start ``labkit lab`` in the folder ``base``, with a home and settings of its own there.

    Parameters
    ----------
    base
        A folder with nothing in it.
    settings
        Of JupyterLab's plugins, added to ``SETTINGS``.
    command, variables
        What to start and with which variables, if not quietly.

    Raises
    ------
    AssertionError
        If it does not start, or if a process of it is still there at the end.
    """
    environment = {**_environment(base), **(variables or {})}
    _write_settings(base / "config", {**SETTINGS, **(settings or {})})
    with open(base / "log", "w") as log:
        process = subprocess.Popen(
            command, cwd=base, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            text=True,
        )  # fmt: skip
    server = CourseServer(process, base, url="")
    try:
        server.url = _printed_url(server)
        yield server
    finally:
        left = _end(server)
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
    browser = base / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    ours = {**folders, "BROWSER": browser}
    return {**kept, **{name: str(path) for name, path in ours.items()}}


def _write_settings(config: Path, settings: Mapping[str, Mapping[str, object]]) -> None:
    (config / "jupyter_lab_config.json").write_text(json.dumps(CONFIG))
    for plugin, values in settings.items():
        path = config / "lab" / "user-settings" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))


def _printed_url(server: CourseServer) -> str:
    """Return the address that the server prints, once it listens there: it prints it before."""
    address = re.compile(r"http://127\.0\.0\.1:(\d+)\S+")

    def listens() -> bool:
        assert server.process.poll() is None, server.said
        found = address.search(server.said)
        return found is not None and _takes_connections(int(found[1]))

    until(listens, START_SECONDS, lambda: server.said)
    found = address.search(server.said)
    assert found is not None
    return found[0]


def _takes_connections(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS).close()
        return True
    return False


def _end(server: CourseServer) -> list[str]:
    """End the server as a terminal would; kill and name what is there after that."""
    family = server.family() if server.process.poll() is None else []
    server.process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.process.wait(STOP_SECONDS)
    _, alive = psutil.wait_procs({*family, *server.family()}, STOP_SECONDS)
    left = []
    for survivor in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.append(" ".join(survivor.cmdline()))
            survivor.kill()
    server.process.wait()
    return left
