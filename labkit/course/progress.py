"""Keep in one file what a learner has done: which exercises have passed, and what they took.

The file lies in the learner's copy of the course, beside the folder ``notebooks``, and is sent
nowhere. Several kernels change it: each change reads the newest file under a lock and replaces it
in one step, so nothing is lost, and whoever reads it needs no lock.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from ..base import times
from ..base.errors import DataError
from ..base.files import reason, write_whole

FILE, LOCK = "progress.json", ".progress.lock"
#: What this labkit writes, and the newest that it reads.
VERSION = 2
#: Version 1 called notebooks by other numbers: theirs -> today's, of those that have changed.
_NUMBERS = {
    "04": "05", "05": "04", "06": "07", "07": "08", "08": "09", "09": "12", "10": "11", "11": "13",
    "12": "19", "13": "26", "14": "20", "15": "23", "16": "24", "17": "25", "18": "15", "19": "21",
}  # fmt: skip
#: And its exercises that are in another notebook now, by their old ids.
_MOVED = {"04-3": "06-1", "04-4": "06-2"}
#: Bytes of a file that is read: that of a whole course has some 20,000.
LARGEST = 1 << 20

Count = Annotated[int, msgspec.Meta(ge=0)]
Minutes = Annotated[float, msgspec.Meta(ge=0)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass
class Entry:
    """Hold what a learner has done for one exercise, up to the first check that it has passed.

    Attributes
    ----------
    passed
        Whether a check has passed. It stays so, whatever later checks say.
    tries
        Checks of an answer; a stub is none.
    hints
        Hints that were given.
    solution
        Whether the solution was shown or defined.
    minutes
        From the first to the last check, without pauses (see ``PAUSE`` in ``base/times.py``).
    mistakes
        How often checks have named each known mistake, by its sentence.
    last
        When labkit was last asked for something about the exercise.
    """

    passed: bool = False
    tries: Count = 0
    hints: Count = 0
    solution: bool = False
    minutes: Minutes = 0.0
    mistakes: dict[str, Count] = field(default_factory=dict)
    last: Moment | None = None

    def check(self, passed: bool, mistake: str | None, now: datetime) -> None:
        """Count a check of an answer."""
        if not self._goes_on(now):
            return
        self.tries += 1
        if mistake is not None:
            self.mistakes[mistake] = self.mistakes.get(mistake, 0) + 1
        self.passed = passed

    def hint(self, now: datetime) -> None:
        """Count a hint."""
        if self._goes_on(now):
            self.hints += 1

    def see_solution(self, now: datetime) -> None:
        """Note that the solution was seen."""
        if self._goes_on(now):
            self.solution = True

    def _goes_on(self, now: datetime) -> bool:
        """Note the time; return whether the exercise is still open, so that something counts."""
        if not self.passed and self.last is not None:
            since = (now - self.last).total_seconds()
            if 0 < since <= times.PAUSE:  # a clock can be set back
                self.minutes = round(self.minutes + since / 60, 2)
        self.last = now
        return not self.passed


@dataclass
class Progress:
    """Hold what a learner has done in a course.

    Attributes
    ----------
    version
        Of the file.
    notebook
        The file name of the notebook in which an exercise was checked last; "" before.
    exercises
        By id, those of which something was asked.
    """

    version: int = VERSION
    notebook: str = ""
    exercises: dict[str, Entry] = field(default_factory=dict)


#: Changes an entry, and is given the time.
Change = Callable[[Entry, datetime], None]


@dataclass
class _AnyVersion:
    version: int


def now() -> datetime:
    """Return the time that goes into the file, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def read(folder: Path) -> Progress:
    """Return the progress in a copy of the course; none where there is no file yet.

    Raises
    ------
    DataError
        If the file cannot be read, is damaged, or a newer labkit has written it.
    """
    path = folder / FILE
    try:
        text = _read_file(path)
    except FileNotFoundError:
        return Progress()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({reason(error)}).") from None
    try:
        version = msgspec.json.decode(text, type=_AnyVersion).version
        if version <= VERSION:
            kept = msgspec.json.decode(text, type=Progress)
            return kept if version == VERSION else _renumbered(kept)
    except (ValueError, RecursionError):  # msgspec's own errors are ValueErrors
        raise DataError(
            f"{path} is damaged, or labkit has not written it. If you rename it, labkit begins a "
            "new one."
        ) from None
    raise DataError(f"{path} was written by a newer labkit: update this one, which leaves it be.")


def _renumbered(old: Progress) -> Progress:
    """Return the progress of version 1 with today's numbers of notebooks."""

    def today(name: str) -> str:
        return _NUMBERS.get(name[:2], name[:2]) + name[2:]

    exercises = {_MOVED.get(old_id) or today(old_id): e for old_id, e in old.exercises.items()}
    return Progress(notebook=today(old.notebook), exercises=exercises)


def _read_file(path: Path) -> bytes:
    """Read a file, but nothing that never ends: a teacher reads those of others."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no file")
        return file.read(LARGEST)  # what is cut off does not parse


def change(folder: Path, exercise: str, notebook: str, how: Change) -> Progress:
    """Change the entry of an exercise, as ``how(entry, now)`` does; return the new progress.

    ``notebook`` is the name of the notebook where that happened, "" if it is not known.

    Raises
    ------
    DataError
        If the file cannot be read, locked or written; it stays as it is.
    """
    from filelock import FileLock, Timeout

    path = folder / FILE
    try:
        with FileLock(folder / LOCK, timeout=times.PROGRESS_LOCKED.seconds()):
            progress = read(folder)
            how(progress.exercises.setdefault(exercise, Entry()), now())
            progress.notebook = notebook or progress.notebook
            write_whole(path, _as_json(progress))
            return progress
    except Timeout:
        raise DataError(f"{path} is locked by another process.") from None
    except NotImplementedError:  # of filelock, for a file system without locks
        raise DataError(f"{path} is on a file system that has no locks.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be written ({reason(error)}).") from None


def _as_json(progress: Progress) -> bytes:
    text = json.dumps(asdict(progress), indent=1, ensure_ascii=False, default=datetime.isoformat)
    return f"{text}\n".encode()
