"""Open a course folder in JupyterLab."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from ..base import trust
from ..base.errors import LabError
from ..course import progress
from .environment import encryption

FIRST_PAGE = "notebooks/00_start_here.ipynb"


def page(folder: Path) -> str:
    """Return the notebook in which the learner has checked an exercise last, else the first one."""
    try:
        name = progress.read(folder).notebook
    except LabError:  # a check says what is wrong with the file
        return FIRST_PAGE
    is_there = name == Path(name).name and (folder / "notebooks" / name).is_file()
    return f"notebooks/{name}" if is_there else FIRST_PAGE


def warn_of_root() -> str:
    """Return what it means to start JupyterLab as root, and what to do instead; "" for others."""
    if os.geteuid() != 0:
        return ""
    user = os.environ.get("SUDO_USER")
    instead = (
        f"start it without sudo, as {user}"
        if user and user != "root"
        else "start it as an ordinary user; in a container, one that has a line USER in its "
        "Dockerfile or an option --user"
    )
    return (
        "You are root: every cell, and whoever else reaches the server, can change anything on "
        f"this machine. Better: {instead}. JupyterLab starts with --allow-root all the same."
    )


def warn_of_others(folder: Path) -> str:
    """Return who else can put code beside the notebooks, "" if nobody.

    A kernel starts in the folder of its notebook, and Jupyter lets it import from there.
    """
    places = [folder.resolve() / part for part in ("", "notebooks")]
    why = next((why for place in places if (why := trust.unsafe_reason(place))), "")
    return why and (
        f"Other users can put code beside your notebooks, which Jupyter would run as you: {why}. "
        "Better: a folder that only you can write to, as in labkit lab ~/work."
    )


def command(
    folder: Path, *, port: int | None = None, browser: bool = True, extra: Sequence[str] = ()
) -> list[str]:
    """Return the command that serves ``folder`` on this machine's loopback interface.

    Access needs the token that JupyterLab makes and prints. ``extra`` comes last, so it wins.
    JupyterLab remembers its open tabs inside ``folder``: another project's stay as they are.
    """
    root = folder.resolve()
    argv = [
        sys.executable,
        "-P",  # a learner's own random.py or json.py is no part of the server
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={root}",
        "--ServerApp.ip=127.0.0.1",
        f"--LabApp.default_url=/lab/tree/{quote(page(root))}",
        "--Application.log_level=WARN",  # the address is still shown, forty lines of news are not
        f"--LabApp.workspaces_dir={root / '.jupyter' / 'workspaces'}",
    ]
    argv += [f"--KernelManager.{name}={value}" for name, value in encryption().items()]
    if port is not None:
        argv.append(f"--ServerApp.port={port}")
    if not browser:
        argv.append("--no-browser")
    if os.geteuid() == 0:
        argv.append("--allow-root")
    return [*argv, *extra]
