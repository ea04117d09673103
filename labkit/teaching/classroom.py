"""Show a teacher a class: who is where, what is hard, which mistakes are named most."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from html import escape
from pathlib import Path

from ..base import times
from ..base.errors import DataError, UsageError
from ..base.files import reason, write_whole
from ..course import catalogue
from ..course.exercise import COURSE_ID
from ..figures.picture import Picture
from ..figures.progress import MAX_LEARNERS, class_progress
from ..notebook import shell
from . import class_page, class_summary, learners, records
from .class_summary import Section
from .learners import Learner

#: The column of exercises that are not the course's.
OWN = "own"


class Classroom:
    """Hold what the learners of a class have done, as it was when it was read last.

    A notebook shows a figure and three tables; ``labkit class`` prints the tables.

    Attributes
    ----------
    folder
        The folder that has one folder per learner.
    learners
        The learners, by name; in an order of chance where names are hidden.
    read_at
        When their files were read.
    """

    def __init__(self, folder: str | os.PathLike[str], *, anonymous: bool = False) -> None:
        self.folder = Path(folder)
        self._anonymous = anonymous
        #: What each name is shown as where names are hidden: by chance, for as long as this lives.
        self._aliases: dict[str, str] = {}
        self.learners: list[Learner] = []
        self.refresh()

    def refresh(self) -> bool:
        """Read the files again; return whether something has changed."""
        found = learners.find(self.folder)
        self.read_at = datetime.now().astimezone()
        if self._anonymous:
            found = self._hidden(found)
        before, self.learners = self.learners, found
        return before != found

    def _hidden(self, found: list[Learner]) -> list[Learner]:
        """Return learners with numbers for names; those who come later have the next numbers."""
        new = [each.name for each in found if each.name not in self._aliases]
        secrets.SystemRandom().shuffle(new)
        for name in new:
            self._aliases[name] = f"learner {len(self._aliases) + 1}"
        hidden = [replace(each, name=self._aliases[each.name]) for each in found]
        return sorted(hidden, key=lambda each: int(each.name.split()[1]))

    def watch(self, hours: float = times.CLASS_WATCHED / 3600) -> None:
        """Show the class below this cell and keep it up to date until the stop button is pressed.

        Parameters
        ----------
        hours
            It ends after these at the latest.

        Raises
        ------
        UsageError
            If this is not a notebook.
        """
        if shell.of_notebook() is None:
            raise UsageError("Only a notebook can watch a class; in a terminal use labkit class.")
        from IPython.display import display

        handle = display(self, display_id=True)
        ends, never = time.monotonic() + hours * 3600, threading.Event()
        try:
            while time.monotonic() < ends:
                never.wait(times.CLASS_REFRESH)
                if self.refresh():
                    handle.update(self)
        except KeyboardInterrupt:
            return

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the class as a page of HTML: one file without scripts, which loads nothing.

        Raises
        ------
        DataError
            If it cannot be written; an older page stays then.
        """
        try:
            write_whole(Path(path), self.page().encode("utf-8", "replace"))
        except OSError as error:
            raise DataError(f"{path} cannot be written ({reason(error)}).") from None

    def page(self) -> str:
        """Return the page that ``save`` writes."""
        title = f"Class: {records.printable(self.folder.resolve().name, learners.NAME)}"
        body = class_page.body(self.pictures(), self._sections())
        return class_page.page(title, f"{self.read_at:%Y-%m-%d %H:%M %Z}", self._headline(), body)

    def pictures(self) -> list[Picture]:
        """Return the figure of who has passed what; several for a large class."""
        begun = [each for each in self.learners if each.exercises]
        columns = _columns(begun)
        parts = [begun[i : i + MAX_LEARNERS] for i in range(0, len(begun), MAX_LEARNERS)]
        return [
            class_progress(
                {each.name: _passed(each, columns) for each in part},
                {column: len(ids) for column, ids in columns.items()},
                at={each.name: each.notebook for each in part if each.notebook in columns},
                title="Exercises passed, by learner and notebook",
            )
            for part in parts
        ]

    def _sections(self) -> list[Section]:
        return class_summary.sections(self.learners)

    def _headline(self) -> str:
        return class_summary.headline(self.learners)

    def __repr__(self) -> str:
        return "\n\n".join([self._headline(), *map(_as_text, self._sections())])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        when = f"As of {self.read_at:%H:%M:%S}. {self._headline()}"
        body = class_page.body(self.pictures(), self._sections())
        return {"text/plain": repr(self), "text/html": f"<p>{escape(when)}</p>\n{body}"}


def classroom(folder: str | os.PathLike[str], *, anonymous: bool = False) -> Classroom:
    """Return what the learners of a class have done: who is where, which exercises take most
    tries, and which mistakes are named most.

    ``.watch()`` keeps it up to date below a cell, ``.save("page.html")`` writes a page.

    Parameters
    ----------
    folder
        Has one folder per learner, each with the learner's copy of the course. What is read is the
        file ``progress.json`` of that copy.
    anonymous
        Whether numbers stand for names, given by chance.

    Raises
    ------
    UsageError
        If there is no such folder, or it is not the folder of a class.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> homes = Path(mkdtemp())
    >>> (homes / "ada").mkdir()
    >>> labkit.classroom(homes)
    1 learner, 0 with progress.
    ...
    """
    return Classroom(folder, anonymous=anonymous)


def _columns(begun: Sequence[Learner]) -> dict[str, list[str]]:
    """Return the exercises of each column: of the notebooks up to the last that somebody has begun,
    and of those that are not the course's."""
    seen = {name for each in begun for name in each.exercises}
    course = {name.partition("-")[0] for name in seen if COURSE_ID.fullmatch(name)}
    columns = {n: catalogue.ids(n) for n in catalogue.numbers() if n <= max(course, default="")}
    own = sorted(name for name in seen if not COURSE_ID.fullmatch(name))
    return {**columns, OWN: own} if own else columns


def _passed(learner: Learner, columns: dict[str, list[str]]) -> list[int]:
    passed = {name for name, entry in learner.exercises.items() if entry.passed}
    return [len(passed.intersection(ids)) for ids in columns.values()]


def _as_text(section: Section) -> str:
    """Return a table as text."""
    if not section.rows:
        return f"{section.caption}: {section.empty}"
    rows = [section.head, *section.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(section.head))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([section.caption, *lines])
