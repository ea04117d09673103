"""Find the learners of a class, one folder each, and read what they have done.

The folders belong to others, so nothing in them is trusted: no link is followed, no more is read
than a progress file can be, and what is odd in one costs that one its numbers and nobody else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from ..base.errors import DataError, UsageError
from ..base.files import reason
from ..course import catalogue, progress
from ..course.exercise import OWN_ID
from ..course.progress import FILE, Entry, Progress
from .records import printable

#: How many folders deep in a learner's folder the progress may be: ada/work/progress.json.
DEPTH = 2
#: Entries of a folder that are looked at, and exercises of a learner: more than the course has.
MOST_ENTRIES, MOST_EXERCISES = 1000, 500
#: Characters of a name, and of the id of an exercise, that are shown.
NAME, ID = 40, 24
#: Larger counts and minutes are shown as these: they are an error or a joke.
MOST_TRIES, MOST_MINUTES = 9999, 9999.0
#: Years that a clock may have.
YEARS = range(2020, 2200)


@dataclass(frozen=True)
class Learner:
    """Hold what one learner has done."""

    name: str
    notebook: str = ""  #: the number of the notebook that was worked on last, "" if not known
    exercises: dict[str, Entry] = field(default_factory=dict)  #: those of which something is known
    problem: str = ""  #: why nothing is known, in a sentence

    @property
    def passed(self) -> int:
        """How many exercises have passed."""
        return sum(entry.passed for entry in self.exercises.values())

    @property
    def latest(self) -> tuple[str, Entry] | None:
        """The exercise of which something was asked last; None before the first."""
        dated = [(entry.last, name) for name, entry in self.exercises.items() if entry.last]
        return (max(dated)[1], self.exercises[max(dated)[1]]) if dated else None


def find(folder: Path) -> list[Learner]:
    """Return the learners of a class by name; each folder in ``folder`` is one.

    Raises
    ------
    UsageError
        If there is no such folder, it has no folders, or it is one learner's own.
    """
    try:
        with os.scandir(folder) as inside:
            entries = sorted((e for e in inside if not e.name.startswith(".")), key=_name)
    except OSError as error:
        raise UsageError(f"{folder} cannot be read as a folder ({reason(error)}).") from None
    if any(entry.name == FILE for entry in entries):
        raise UsageError(
            f"{folder} is the copy of one learner: name the folder that has one folder per learner."
        )
    homes = [e for e in entries if e.is_dir()]
    if not homes:
        raise UsageError(f"{folder} has no folders: there should be one per learner in it.")
    names = _unique([printable(home.name.replace("\n", "�"), NAME) for home in homes])
    course = {id for number in catalogue.numbers() for id in catalogue.ids(number)}
    return [_learner(name, home, course) for name, home in zip(names, homes, strict=True)]


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name.casefold()


def _unique(names: list[str]) -> list[str]:
    """Return names that differ: two folders can have names that are shown alike."""
    unique: list[str] = []
    for name in names:
        again = sum(own == name or own.startswith(f"{name} (") for own in unique)
        unique.append(f"{name} ({again + 1})" if again else name)
    return unique


def _learner(name: str, home: os.DirEntry[str], course: set[str]) -> Learner:
    if home.is_symlink():
        return Learner(name, problem="The folder is a symbolic link, which is not followed.")
    try:
        found = max(_files(Path(home.path), DEPTH), default=None)
    except OSError as error:
        return Learner(name, problem=f"The folder cannot be read ({reason(error)}).")
    if found is None:
        return Learner(name, problem=f"There is no {FILE} yet.")
    path = found[1]
    if path.is_symlink():
        return Learner(name, problem=f"{FILE} is a symbolic link, which is not followed.")
    try:
        known = progress.read(path.parent)
    except DataError as error:  # its path has the learner's name, which may be hidden
        return Learner(name, problem=_problem(error, path))
    return _cleaned(name, known, course)


def _problem(error: DataError, path: Path) -> str:
    """Return what is wrong with a file, without its path and what its owner could do."""
    return str(error).replace(str(path), FILE).partition(" If you")[0]


def _files(folder: Path, depth: int) -> Iterator[tuple[float, Path]]:
    """Yield the time and the path of each progress file in a folder and, at most ``depth`` folders
    deep, in those inside it."""
    with os.scandir(folder) as inside:
        entries = [entry for entry, _ in zip(inside, range(MOST_ENTRIES), strict=False)]
    for entry in entries:
        if entry.name == FILE:
            yield entry.stat(follow_symlinks=False).st_mtime, Path(entry.path)
        elif depth and entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
            try:
                yield from _files(Path(entry.path), depth - 1)
            except OSError:  # what cannot be entered is not the course
                continue


def _cleaned(name: str, known: Progress, course: set[str]) -> Learner:
    """Return what can be shown: exercises that may exist, with numbers that can be added up."""
    exercises = {
        id: _bounded(entry)
        for id, entry in list(known.exercises.items())[:MOST_EXERCISES]
        if id in course or (len(id) <= ID and OWN_ID.fullmatch(id))
    }
    number = known.notebook[:2]
    return Learner(name, number if f"{number}-1" in course else "", exercises)


def _bounded(entry: Entry) -> Entry:
    last = entry.last
    return replace(
        entry,
        tries=min(entry.tries, MOST_TRIES),
        hints=min(entry.hints, MOST_TRIES),
        minutes=min(entry.minutes, MOST_MINUTES),
        last=last if isinstance(last, datetime) and last.year in YEARS else None,
    )
