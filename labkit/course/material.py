"""Find the course: in the checkout, or in what the wheel brought."""

from __future__ import annotations

from pathlib import Path

from ..base.errors import DataError

#: What `labkit run` and Python leave behind: no part of the course.
NOT_COPIED_SUFFIXES = (".executed.ipynb", ".pyc")


def root() -> Path:
    """Return the folder that holds the course: the checkout, else what the wheel brought.

    Raises
    ------
    DataError
        If neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    checkout = package.parent
    if (checkout / "notebooks").is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout
    if (package / "_course" / "notebooks").is_dir():
        return package / "_course"
    raise DataError("This installation of labkit came without the course: install it again.")


def file(name: str) -> Path:
    """Return where a file of the course's notebooks is: ``"scripts/single.py"``."""
    return root() / "notebooks" / name


def notebooks(number: str = "") -> list[Path]:
    """List the course's notebooks in reading order, or those of one number such as ``"01"``."""
    found = sorted((root() / "notebooks").glob(f"{number}*.ipynb"))
    return [path for path in found if not path.name.endswith(NOT_COPIED_SUFFIXES)]
