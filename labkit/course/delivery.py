"""Find the course's own files, and give a learner a copy that can be updated.

A notebook is delivered in the learner's edition: without the solutions of its exercises.

A learner's folder remembers what was delivered to it (``.labkit-course.json``: a checksum for
each file). So a file that the learner has not touched is updated, and one that the learner has
touched is never written to: a newer course version of it is laid beside as ``NAME.new.ipynb``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from ..base import trust
from ..base.errors import DataError, UsageError
from ..base.files import reason, write_whole
from . import edition, material

PARTS = ("notebooks", "data")
#: The full MNIST, that anybody can download, and what cells of the course write.
NOT_COPIED = ("data/full/*", "notebooks/my_*")
RECORD = ".labkit-course.json"


@dataclass
class Delivery:
    """What :func:`new_course` did, as lists of names such as ``notebooks/00_start_here.ipynb``."""

    folder: Path
    new: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)  #: the learner had not touched them
    unchanged: list[str] = field(default_factory=list)  #: those the learner works in included
    kept: dict[str, str] = field(default_factory=dict)  #: touched -> newer version beside it
    exercises: list[str] = field(default_factory=list)  #: ids of those that came with an update

    def __str__(self) -> str:
        """Return it in a line, and in one more for each file that waits beside the learner's."""
        counts = {"new": len(self.new), "updated": len(self.updated)}
        said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        lines = [
            f"Course in {self.folder}: {said or 'nothing new'}, {len(self.unchanged)} as before."
        ]
        for name, beside in self.kept.items():
            lines.append(f"You changed {name}; its newer version is {beside}.")
        if self.exercises:
            lines.append(f"New exercises: {', '.join(self.exercises)}.")
        return "\n".join(lines)


def new_course(directory: str | os.PathLike[str]) -> Delivery:
    """Copy the course into a folder, or bring a copy there up to date. Nothing a learner wrote
    is overwritten.

    Parameters
    ----------
    directory
        A folder that does not exist, is empty, or has had the course before.

    Raises
    ------
    LabError
        If it is something else or cannot be written to. What was delivered until then stays.
    """
    source, folder = material.root(), Path(directory).expanduser()
    _check(folder, source)
    sums, delivery = _delivered(folder), Delivery(folder)
    steps = dict(filter(None, (_plan(name, source, sums, delivery) for name in _names(source))))
    for place in (folder, *{(folder / name).parent for name in steps}):
        if why := trust.unsafe_link_reason(place):
            raise DataError(f"The course cannot be copied to {folder}: {why}.")
    record = folder / RECORD
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not record.exists():  # so that a copy cut short can be taken up
            write_whole(record, _as_json({}))
        for name, content in steps.items():
            write_whole(folder / name, content)
        if record.read_bytes() != _as_json(sums):
            write_whole(record, _as_json(sums))
    except OSError as error:
        raise DataError(f"The course cannot be copied to {folder} ({reason(error)}).") from None
    return delivery


def _check(folder: Path, source: Path) -> None:
    """Raise LabError unless ``folder`` can take the course."""
    if any(folder.resolve().is_relative_to((source / part).resolve()) for part in PARTS):
        raise UsageError(f"{folder} is part of the course itself; choose a folder outside it.")
    try:
        if not folder.exists() or (folder / RECORD).is_file() or not any(folder.iterdir()):
            return
    except OSError as error:
        raise DataError(f"{folder} cannot hold the course ({reason(error)}).") from None
    raise UsageError(
        f"{folder} has files in it but is no copy of the course; choose a new or an empty folder."
    )


def _names(source: Path) -> list[str]:
    """List the course's files by name, checkpoints and other left-overs left out."""
    names = []
    for part in PARTS:
        for path in sorted((source / part).rglob("*")):
            relative = path.relative_to(source)
            name = relative.as_posix()
            hidden = any(piece.startswith((".", "__")) for piece in relative.parts)
            if hidden or name.endswith(material.NOT_COPIED_SUFFIXES) or not path.is_file():
                continue
            if not any(fnmatch(name, pattern) for pattern in NOT_COPIED):
                names.append(name)
    return names


# -- what was delivered -------------------------------------------------------------------------


def _delivered(folder: Path) -> dict[str, str]:
    """Return the checksums of what a folder was given: name -> SHA-256."""
    try:
        stored = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return {str(name): str(value) for name, value in stored["delivered"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Without it every file that differs counts as the learner's: nothing is lost.
        return {}


def _as_json(sums: Mapping[str, str]) -> bytes:
    return (json.dumps({"delivered": dict(sorted(sums.items()))}, indent=1) + "\n").encode()


def _plan(
    name: str, source: Path, sums: dict[str, str], delivery: Delivery
) -> tuple[str, bytes] | None:
    """Decide what happens to one file, and note it in ``sums`` and the delivery; return what is
    to be written, and under which name inside the learner's folder."""
    content = edition.delivered(name, (source / name).read_bytes())
    ours, theirs, given = _sum(content), _sum_of(delivery.folder / name), sums.get(name)
    sums[name] = ours
    if theirs is None:
        delivery.new.append(name)
        return name, content
    if ours in (theirs, given):  # the same, or not changed since the learner got it
        delivery.unchanged.append(name)
        return None
    delivery.exercises += _new_exercises(delivery.folder / name, content)
    if theirs == given:
        delivery.updated.append(name)
        return name, content
    beside = _free_name(name, ours, delivery.folder, sums)
    sums[beside], delivery.kept[name] = ours, beside
    return beside, content


def _new_exercises(theirs: Path, content: bytes) -> list[str]:
    """List the exercises that a notebook has and the learner's version of it has not."""
    known = edition.exercises_in(theirs.read_bytes())
    return [exercise for exercise in edition.exercises_in(content) if exercise not in known]


def _free_name(name: str, ours: str, folder: Path, sums: Mapping[str, str]) -> str:
    """Return ``NAME.new.ipynb``, or ``NAME.new-2.ipynb`` if the learner has touched that one."""
    path = Path(name)
    for number in range(1, 1000):
        suffix = ".new" if number == 1 else f".new-{number}"
        beside = path.with_name(f"{path.stem}{suffix}{path.suffix}").as_posix()
        if _sum_of(folder / beside) in (None, ours, sums.get(beside)):
            return beside
    raise DataError(f"{folder} has a thousand newer versions of {name}; remove some of them.")


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sum_of(path: Path) -> str | None:
    """Return the checksum of a file, None if there is none; DataError if it cannot be one."""
    try:
        return _sum(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(
            f"{path} is in the way of a file of the course ({reason(error)})."
        ) from None
