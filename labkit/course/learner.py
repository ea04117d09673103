"""Note what a learner does, where a notebook belongs to the learner's own copy of the course.

Such a copy is known by the record that its delivery has left there. The course's own notebooks
have none, and where nobody looks on (``labkit run`` and ``test``, nbval, papermill, CI) nothing is
noted, so no run of a program counts as somebody's work. Nothing here ever disturbs a check.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..base.errors import DataError, wrapped
from ..notebook import shell
from . import catalogue, delivery, material, progress
from .progress import Change, Progress

_is_told = False  #: that the progress cannot be kept
_greeted: set[str] = set()  #: numbers of the notebooks whose learner knows how far it is


def own_copy() -> Path | None:
    """Return the learner's copy of the course that this notebook belongs to; None if to none."""
    start = place()
    # Not Path.is_file, which raises where a folder is closed to this user.
    folders = (start, start.parent)
    return next((f for f in folders if os.path.isfile(f / delivery.RECORD)), None)


def place() -> Path:
    """Return the folder of this notebook: that of its file, else where its kernel started."""
    notebook, kernel = shell.file_of_notebook(), shell.current()
    if notebook is not None:
        return notebook.parent
    return Path(kernel.starting_dir if kernel is not None else "").absolute()


def note(exercise: str, how: Change) -> Progress | None:
    """Change what is noted of an exercise; return the progress, None if none is kept here.

    If it cannot be kept, a sentence says why, once.
    """
    from ..notebook import live  # with what a lab needs

    global _is_told
    if not live.is_watched() or (folder := own_copy()) is None:
        return None
    try:
        return progress.change(folder, exercise, _notebook(folder, exercise), how)
    except DataError as error:
        if not _is_told:
            _is_told = True
            print(wrapped(f"labkit could not note your progress: {error}"))
        return None


def _notebook(folder: Path, exercise: str) -> str:
    """Name the notebook of an exercise: this one, if it is one of the copy's."""
    this = shell.file_of_notebook()
    if this is not None and this.parent == folder / "notebooks":
        return this.name
    number = exercise.partition("-")[0]
    return next((path.name for path in material.notebooks(number)), "") if number else ""


def standing(kept: Progress, exercise: str) -> str:
    """Return how far the learner is, at the first check of a notebook since the kernel started and
    when the last exercise of the course has passed; else ""."""
    number = exercise.partition("-")[0]
    every = [name for n in catalogue.numbers() for name in catalogue.ids(n)]
    passed = {name for name, entry in kept.exercises.items() if entry.passed}
    if passed.issuperset(every):
        if "all" in _greeted:
            return ""
        _greeted.add("all")
        return f"You have solved all {len(every)} exercises; labkit.progress() shows them."
    if number in _greeted or number not in catalogue.numbers():
        return ""
    _greeted.add(number)
    own = catalogue.ids(number)
    here, course = len(passed.intersection(own)), len(passed.intersection(every))
    return (
        f"Passed so far: {here} of {len(own)} in notebook {number}, "
        f"{course} of {len(every)} in the course; see labkit.progress()."
    )
