"""Open a course folder in JupyterLab."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

FIRST_PAGE = "notebooks/00_start_here.ipynb"


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
        f"--LabApp.default_url=/lab/tree/{FIRST_PAGE}",
        "--Application.log_level=WARN",  # the address is still shown, forty lines of news are not
        f"--LabApp.workspaces_dir={root / '.jupyter' / 'workspaces'}",
    ]
    if port is not None:
        argv.append(f"--ServerApp.port={port}")
    if not browser:
        argv.append("--no-browser")
    if os.geteuid() == 0:
        argv.append("--allow-root")
    return [*argv, *extra]
