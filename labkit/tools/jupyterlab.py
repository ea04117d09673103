"""Open a course folder in JupyterLab."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from ..base import trust
from ..base.errors import LabError
from ..course import progress
from .environment import encryption, kernel_environment

FIRST_PAGE = "notebooks/00_start_here.ipynb"

#: Jupyter's configuration for the server of ``labkit lab``, and for no other Jupyter of the user.
#:
#: ``labconfig/default_setting_overrides.json``: no question about news, and no column of dates,
#: so that a file's name has the whole width of the list. The user's own settings win.
#: ``labconfig/page_config.json``: without ipyparallel's side bar, whose clusters are no labs.
#: ``jupyter_server_config.json``: without ipyparallel's part of the server, which only that side
#: bar uses and of which the server warns; and without pings, whose interval and time limit
#: jupyter_server chooses such that tornado warns of them. A browser on the same machine is
#: known to be gone when its connection closes.
CONFIG = Path(__file__).with_name("jupyter_config")


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


def welcome(folder: Path, *, browser: bool = True) -> str:
    """Return what the terminal says before JupyterLab prints its address."""
    how = "opens in your browser; its address is below" if browser else "opens at the address below"
    return f"{folder.resolve()} {how}. Stop JupyterLab with Ctrl-C, pressed twice."


def server_environment() -> dict[str, str]:
    """Return the variables for the server: those of its kernels, and where ``CONFIG`` is.

    What users choose in JupyterLab's settings wins over what ``CONFIG`` presets.
    """
    environment = kernel_environment()
    paths = [str(CONFIG), environment.get("JUPYTER_CONFIG_PATH", "")]
    return {**environment, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}


def trust_notebooks(folder: Path, names: Iterable[str]) -> None:
    """Sign notebooks of the course for Jupyter, which warns of each that it does not know.

    Those with outputs that could run code in the browser stay unsigned. The signatures are in the
    user's own Jupyter folder: a course folder that brought its own would be trusted blindly.

    Parameters
    ----------
    folder
        The copy of the course.
    names
        What has been delivered to it now: notebooks are picked out.
    """
    notebooks = [folder / name for name in names if name.endswith(".ipynb")]
    if not notebooks:
        return
    import nbformat
    from nbformat.sign import NotebookNotary

    with contextlib.suppress(OSError, sqlite3.Error):  # Jupyter's folder is full or read-only
        notary = NotebookNotary()
        for path in notebooks:
            notebook = nbformat.read(path, as_version=4)
            if notary.check_cells(notebook):
                notary.sign(notebook)
        notary.store.close()


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
