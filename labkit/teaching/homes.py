"""Find learners' notebooks: single ones, a copy of the course, or a folder of many homes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..base.errors import UsageError
from ..course import material

#: A notebook of the course, by its file name.
_NOTEBOOK = re.compile(r"(\d\d)_\w[\w.-]*\.ipynb")
#: Endings of files that no learner hands in.
_OTHERS = (*material.NOT_COPIED_SUFFIXES, ".new.ipynb")
#: How many folders deep the notebooks of a home may be: ada/work/notebooks.
DEPTH = 3


@dataclass(frozen=True)
class Home:
    """What one learner has handed in: notebooks by file name."""

    name: str
    notebooks: dict[str, Path] = field(default_factory=dict)


def find(paths: Sequence[Path], only: Iterable[str] = ()) -> list[Home]:
    """Find what is to be graded.

    Parameters
    ----------
    paths
        Notebooks, copies of the course, and folders of homes, of which each has a copy.
    only
        Numbers of notebooks, such as "00"; none: all of them.

    Raises
    ------
    UsageError
        If a path is none of these, or nothing is left.
    """
    wanted = set(only)
    for number in wanted:
        if not re.fullmatch(r"\d\d", number):
            raise UsageError(f'--only takes numbers of notebooks, as in "00,01", not {number!r}.')
    found: dict[Path, dict[str, Path]] = {}
    for path in paths:
        for folder, notebooks in _homes(path):
            into = found.setdefault(folder, {})
            into.update((n, p) for n, p in notebooks.items() if not wanted or n[:2] in wanted)
    if not any(found.values()):
        raise UsageError("There is no notebook with exercises to grade.")
    names = _names(list(found))
    return [Home(names[folder], notebooks) for folder, notebooks in found.items()]


def _homes(path: Path) -> list[tuple[Path, dict[str, Path]]]:
    """Return the homes that a path is, or has: folder and notebooks."""
    if path.is_file() and path.suffix == ".ipynb":
        if not _NOTEBOOK.fullmatch(path.name):
            raise UsageError(
                f"{path} is no notebook of the course: their names begin with a number, as in "
                "00_start_here.ipynb."
            )
        return [(_home_of(path.parent), {path.name: path})]
    if not path.is_dir():
        raise UsageError(f"There is no notebook or folder {path}.")
    if found := _notebooks(path, 0) or _notebooks(path / "notebooks", 0):
        return [(_home_of(path), found)]
    folders = [inside for inside in sorted(path.resolve().iterdir()) if inside.is_dir()]
    # A link would hand in what somebody else has done.
    homes = [(f, {} if f.is_symlink() else _notebooks(f, DEPTH - 1)) for f in folders]
    if not any(notebooks for _, notebooks in homes):
        raise UsageError(
            f"{path} has no notebooks of the course: it may be a copy of the course, or a folder "
            "of homes with a copy in each."
        )
    return [(folder, notebooks) for folder, notebooks in homes if not folder.name.startswith(".")]


def _home_of(folder: Path) -> Path:
    """Return the home that a folder with notebooks, or one above it, is."""
    folder = folder.resolve()
    return folder.parent if folder.name == "notebooks" else folder


def _names(folders: Sequence[Path]) -> dict[Path, str]:
    """Name each by its last folder, and those that would have the same name by more of them."""
    lengths = dict.fromkeys(folders, 1)
    while True:
        names = {folder: "/".join(folder.parts[-lengths[folder] :]) for folder in folders}
        count = Counter(names.values())
        if not (same := [folder for folder in folders if count[names[folder]] > 1]):
            return names
        for folder in same:
            lengths[folder] += 1


def _notebooks(folder: Path, depth: int) -> dict[str, Path]:
    """Return the notebooks of the course in a folder, or in one that it holds."""
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return {}
    found = {path.name: path for path in inside if _is_notebook(path)}
    if found or not depth:
        return found
    deeper = [path for path in inside if path.is_dir() and not path.is_symlink()]
    # A copy of the course has its notebooks in a folder of that name.
    for path in sorted(deeper, key=lambda path: path.name != "notebooks"):
        if not path.name.startswith(".") and (found := _notebooks(path, depth - 1)):
            return found
    return {}


def _is_notebook(path: Path) -> bool:
    known = bool(_NOTEBOOK.fullmatch(path.name)) and not path.name.endswith(_OTHERS)
    return known and path.is_file() and not path.is_symlink()
