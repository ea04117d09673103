"""Show a learner's progress: a row per notebook, a mark per exercise, and where to go on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from . import catalogue, learner, material
from .progress import Entry, Progress, read

PASSED, TRIED, OPEN = "✓", "✗", "○"
LEGEND = f"{PASSED} passed   {TRIED} tried, not yet passed   {OPEN} not tried"
#: JupyterLab's colours, which fit its theme, and others for a page without them.
COLOURS = {
    PASSED: "var(--jp-success-color1, #388e3c)",
    TRIED: "var(--jp-error-color1, #d32f2f)",
    OPEN: "inherit",
}
HEAD = ("notebook", "exercises", "passed", "tries", "hints", "minutes")


@dataclass(frozen=True)
class Row:
    """Hold a notebook and what has been done for its exercises, by id."""

    notebook: str  #: its file name; "" for exercises that are not the course's
    exercises: dict[str, Entry]

    @property
    def name(self) -> str:
        """What the row is called."""
        return self.notebook.removesuffix(".ipynb") or "other exercises"

    @property
    def numbers(self) -> list[str]:
        """What stands in the columns after the marks; how long it took only where it was begun."""
        entries = self.exercises.values()
        passed = f"{sum(entry.passed for entry in entries)} of {len(entries)}"
        sums = _sums(entries)
        return [passed, *(map(str, sums) if sums[0] else [""] * len(sums))]


class ProgressTable:
    """Hold a learner's progress; shown as text and, in a notebook, as HTML.

    Attributes
    ----------
    progress
        What has been noted, by exercise.
    next
        The notebook and the exercise to go on with; None when all have passed.
    """

    def __init__(self, progress: Progress, folder: Path | None = None) -> None:
        self.progress = progress
        self.rows = rows(progress)
        self.next = next_exercise(progress, self.rows)
        self._folder = folder

    def __repr__(self) -> str:
        table = [HEAD, *([r.name, " ".join(map(mark, r.exercises.values())), *r.numbers]
                         for r in self.rows)]  # fmt: skip
        widths = [max(len(row[i]) for row in table) for i in range(len(HEAD))]
        lines = []
        for row in table:
            cells = zip(row, "<<>>>>", widths, strict=True)
            lines.append("  ".join(f"{cell:{way}{width}}" for cell, way, width in cells).rstrip())
        return "\n".join([*lines, LEGEND, "", *self._sentences()])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._html()}

    def _sentences(self) -> list[str]:
        """Return what has been done, and what comes next."""
        entries = [entry for row in self.rows for entry in row.exercises.values()]
        (tries, hints, minutes), seen = _sums(entries), sum(entry.solution for entry in entries)
        passed = f"{sum(entry.passed for entry in entries)} of {len(entries)} exercises have passed"
        took = f"; tries: {tries}, hints: {hints}, solutions seen: {seen}, minutes: {minutes}"
        said = [f"{passed}{took if tries else ''}."]
        if self.next is not None:
            notebook, exercise = self.next
            said.append(f"{'Go on' if tries else 'Begin'} with exercise {exercise} in {notebook}.")
        if self._folder is None:
            said.append("Progress is kept only in a copy of the course that labkit lab has made.")
        return said

    def _html(self) -> str:
        ways = ["left"] * 2 + ["right"] * (len(HEAD) - 2)
        head = "".join(
            f'<th scope="col" style="text-align: {way}">{name}</th>'
            for name, way in zip(HEAD, ways, strict=True)
        )
        body = "".join(self._html_of(row) for row in self.rows)
        said = "".join(f"<p>{escape(line)}</p>" for line in (LEGEND, *self._sentences()))
        if self.next is not None:
            said = said.replace(self.next[0], self._link(self.next[0], self.next[0]))
        return (
            '<table aria-label="Progress in the course">'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{said}"
        )

    def _html_of(self, row: Row) -> str:
        marks = []
        for exercise, entry in row.exercises.items():
            sign, text = mark(entry), escape(describe(exercise, entry))
            marks.append(
                f'<span role="img" aria-label="{text}" title="{text}" '
                f'style="color: {COLOURS[sign]}">{sign}</span>'
            )
        numbers = "".join(f"<td>{number}</td>" for number in row.numbers)
        name = self._link(row.notebook, row.name)
        return (
            f'<tr><th scope="row" style="text-align: left">{name}</th>'
            f'<td style="text-align: left">{" ".join(marks)}</td>{numbers}</tr>'
        )

    def _link(self, notebook: str, text: str) -> str:
        """Return a text as a link to a notebook of the learner's copy, if there is one."""
        if self._folder is None or not notebook:
            return escape(text)
        file = self._folder / "notebooks" / notebook
        return f'<a href="{escape(os.path.relpath(file, learner.place()))}">{escape(text)}</a>'


def progress() -> ProgressTable:
    """Return what you have done in the course, exercise by exercise, and where to go on.

    It is read from ``progress.json`` in your copy of the course, which ``labkit lab`` makes. What
    you check, and each hint and solution that you ask for, is noted there, and sent nowhere.

    Raises
    ------
    DataError
        If that file is damaged, or a newer labkit has written it.

    Examples
    --------
    >>> labkit.progress()
    notebook                    exercises  passed  tries  hints  minutes
    00_start_here               ○ ○ ○ ○    0 of 4
    ...
    Begin with exercise 00-1 in 00_start_here.ipynb.
    ...
    """
    folder = learner.own_copy()
    return ProgressTable(read(folder) if folder is not None else Progress(), folder)


def rows(progress: Progress) -> list[Row]:
    """Return a row for each notebook of the course that has exercises, in reading order, and one
    for exercises that are not the course's, if there are any."""
    others = dict(progress.exercises)
    found = []
    for number in catalogue.numbers():
        notebook = material.notebooks(number)[0].name
        own = {name: others.pop(name, Entry()) for name in catalogue.ids(number)}
        found.append(Row(notebook, own))
    return [*found, Row("", others)] if others else found


def next_exercise(progress: Progress, rows: list[Row]) -> tuple[str, str] | None:
    """Return notebook and id of the exercise to go on with: the first that has not passed in the
    notebook where the learner stopped or after it, else the first of all."""
    stopped = next((i for i, row in enumerate(rows) if row.notebook == progress.notebook), 0)
    for row in (*rows[stopped:], *rows[:stopped]):
        for exercise, entry in row.exercises.items():
            if row.notebook and not entry.passed:
                return row.notebook, exercise
    return None


def mark(entry: Entry) -> str:
    """Return the sign for what has been done for an exercise."""
    return PASSED if entry.passed else TRIED if entry.tries else OPEN


def describe(exercise: str, entry: Entry) -> str:
    """Say what has been done for an exercise: "00-1: passed, tries: 3, hints: 1"."""
    state = {PASSED: "passed", TRIED: "not yet passed", OPEN: "not tried"}[mark(entry)]
    counts = [f"tries: {entry.tries}"] if entry.tries else []
    counts += [f"hints: {entry.hints}"] if entry.hints else []
    counts += ["solution seen"] if entry.solution else []
    return f"{exercise}: {', '.join([state, *counts])}"


def _sums(entries: Iterable[Entry]) -> tuple[int, int, int]:
    """Add up tries, hints and minutes."""
    every = list(entries)
    minutes = round(sum(entry.minutes for entry in every))
    return sum(entry.tries for entry in every), sum(entry.hints for entry in every), minutes
