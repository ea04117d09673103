"""Be another user of this machine, who lays things where they could be taken for labkit's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

#: The user "nobody".
NOBODY = 65534

#: Only root can lay what belongs to somebody else.
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(*command: str | Path) -> None:
    """Run a command of the system as another user."""
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    subprocess.run([*drop, *map(str, command)], check=True, timeout=20)


def bait(marker: Path) -> str:
    """Return Python code that, wherever it runs, leaves a line in ``marker``."""
    return f"open({str(marker)!r}, 'a').write(__name__ + ' ran\\n')\n"


def reachable(folder: Path) -> Path:
    """Make other users reach a test's folder; only this user writes to it."""
    for place in (folder, *folder.parents):
        if place.name.startswith(("pytest-", "popen-")):  # the second of pytest-xdist
            place.chmod(0o755)
    folder.chmod(0o755)
    return folder


def open_folder(path: Path) -> Path:
    """Make a folder in which everybody can write, as people do for a class."""
    path.mkdir()
    path.chmod(0o777)
    return path


def sticky_folder(path: Path) -> Path:
    """Make a folder as /tmp is: everybody can write, nobody can touch what is another's."""
    path.mkdir()
    path.chmod(0o1777)
    return path
