"""Validate notebooks: run them and compare what they print with what is stored in them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..base.errors import UsageError
from ..course import material


def find(paths: Sequence[Path]) -> list[Path]:
    """Return the notebooks among ``paths`` and in the folders among them; the course's if empty.

    Raises
    ------
    UsageError
        If a path is neither, or there is no notebook in a folder.
    """
    if not paths:
        return material.notebooks()
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = list(_inside(path))
            if not inside:
                raise UsageError(f"There is no notebook in {path}.")
            found += inside
        elif path.suffix == ".ipynb" and path.is_file():
            found.append(path)
        else:
            raise UsageError(f"{path} is neither a notebook (.ipynb) nor a folder with notebooks.")
    return list(dict.fromkeys(path.resolve() for path in found))


def _inside(folder: Path) -> Iterable[Path]:
    for path in sorted(folder.rglob("*.ipynb")):
        hidden = any(piece.startswith(".") for piece in path.relative_to(folder).parts)
        if not hidden and not path.name.endswith(".executed.ipynb"):
            yield path


def command(notebooks: Sequence[Path], *, timeout: float) -> list[str]:
    """Return the pytest command that validates ``notebooks``, ``timeout`` seconds a cell.

    It reads no configuration file and runs no ``conftest.py``, which lies beside the notebooks,
    so that the same notebook passes or fails everywhere.
    """
    return [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        f"--config-file={os.devnull}",
        f"--rootdir={os.path.commonpath([path.parent for path in notebooks])}",
        "--noconftest",
        "--nbval",
        "--nbval-current-env",
        f"--nbval-cell-timeout={timeout:g}",
        f"--color={'yes' if sys.stdout.isatty() else 'no'}",  # nbval itself does not look
        *("-p", "labkit.tools.nbval_plugin", "-p", "no:cacheprovider"),
        *map(str, notebooks),
    ]
