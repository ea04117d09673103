"""Grade learners' notebooks: run copies of them in sandboxes, and judge what their answers give.

The grade comes from this run alone. Progress files, stored outputs and what a notebook prints are
not read; its cells that call ``labkit.check`` need not be there; ``labkit.solution`` has no
solutions in a sandbox. See "What a notebook can still do" in docs/TEACHING.md.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..base import variables
from ..base.errors import DataError, LabError
from ..base.files import reason
from ..course import edition, material
from . import plan, run_inside, sandbox
from .homes import Home
from .judge_answers import Judge, Mark, exercises_of
from .records import printable

#: What is copied of a learner's folder at most: bytes, files, and bytes of a notebook.
COPIED, FILES, NOTEBOOK = 256 << 20, 5000, 32 << 20


@dataclass
class Grade:
    """What one notebook of a learner is worth."""

    home: str
    notebook: str
    marks: dict[str, Mark]
    notes: list[str] = field(default_factory=list)  #: what went wrong in the run
    seconds: float = 0.0
    memory: int = 0  #: bytes, the most that was seen

    @property
    def number(self) -> str:
        """The notebook's number, as in "00"."""
        return self.notebook.partition("_")[0]

    @property
    def passed(self) -> int:
        """How many exercises are solved."""
        return sum(mark.passed for mark in self.marks.values())


class Grader:
    """Grade notebooks, several at the same time.

    Parameters
    ----------
    sandboxes, judge
        Where they run, and what compares their answers.
    limits
        Of each notebook.
    """

    def __init__(self, sandboxes: sandbox.Sandboxes, judge: Judge, limits: sandbox.Limits) -> None:
        self._sandboxes = sandboxes
        self._judge = judge
        self._limits = limits
        self._questions: dict[str, tuple[str, bytes]] = {}

    def grade(
        self,
        homes: Sequence[Home],
        jobs: int,
        begins: Callable[[str, str], object],
        ended: Callable[[Grade], object],
    ) -> list[Grade]:
        """Grade all notebooks; return one grade per home and notebook, in their order.

        A home without a notebook that others have gets no point for it. ``begins(home, notebook)``
        and ``ended(grade)`` are called from several threads.
        """
        names = sorted({name for home in homes for name in home.notebooks})
        ids = {name: exercises_of(name) for name in names}
        names = [name for name in names if ids[name]]
        self._questions = self._judge.questions([i for name in names for i in ids[name]])

        def one(home: Home, name: str) -> Grade:
            begins(home.name, name)
            grade = Grade(home.name, name, dict.fromkeys(ids[name], Mark(False)))
            try:
                self._run(grade, home.notebooks.get(name))
            except LabError as error:
                grade.notes.append(str(error))
            ended(grade)
            return grade

        with ThreadPoolExecutor(jobs) as pool:
            futures = [pool.submit(one, home, name) for home in homes for name in names]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self._sandboxes.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _run(self, grade: Grade, path: Path | None) -> None:
        """Run a notebook and note what its answers are worth."""
        if path is None:
            grade.notes.append("the notebook is not there")
            return
        cells = read(path)
        if sources(cells) == self._untouched.get(path.name):
            grade.marks = dict.fromkeys(grade.marks, Mark(False, "nothing", "Nothing is done yet."))
            return
        job = self._sandboxes.job()
        try:
            folder = copy(path, job.home)
            answers = {name: self._questions[name][0] for name in grade.marks}
            steps = plan.plan(cells, answers)
            for name in grade.marks:
                (job.asked / name).write_bytes(self._questions[name][1])
            what = {"folder": str(folder), "steps": [step.encoded() for step in steps]}
            (job.asked / run_inside.PLAN).write_text(json.dumps(what), encoding="utf-8")
            limits = [str(self._limits.cell), str(self._limits.memory)]
            ended = self._sandboxes.run(job, run_inside.__name__, limits, self._limits)
            grade.seconds, grade.memory = ended.seconds, ended.memory
            grade.marks, grade.notes = self._judge.marks(
                list(grade.marks), job.told, self._ranks[path.name]
            )
            if ended.reason:
                grade.notes.append(f"the notebook was ended: {ended.reason}")
            elif ended.code:
                last = printable(ended.log.splitlines()[-1] if ended.log else "")
                grade.notes.append(f"the run ended by itself, with code {ended.code}: {last}")
        except OSError as error:
            raise DataError(f"{path} cannot be graded ({reason(error)}).") from None
        finally:
            self._sandboxes.remove(job)

    @cached_property
    def _course(self) -> dict[str, Any]:
        """The course's notebooks by name, read once."""
        import nbformat

        return {path.name: nbformat.read(path, as_version=4) for path in material.notebooks()}

    @cached_property
    def _ranks(self) -> dict[str, dict[str, int]]:
        """On how many ranks the course tries each exercise, by notebook."""
        return {name: plan.ranks(sources(nb.cells)) for name, nb in self._course.items()}

    @cached_property
    def _untouched(self) -> dict[str, list[str]]:
        """The cells that a learner is given, by notebook."""
        return {name: sources(edition.learners(nb).cells) for name, nb in self._course.items()}


def read(path: Path) -> list[Any]:
    """Return the cells of a learner's notebook.

    Raises
    ------
    DataError
        If it is none.
    """
    import nbformat

    try:
        with open(path, "rb", opener=_no_link) as file:
            text = file.read(NOTEBOOK + 1)
        if len(text) > NOTEBOOK:
            raise DataError(f"{path.name} is larger than {NOTEBOOK >> 20} MiB.")
        nb = nbformat.reads(text.decode(), as_version=4)
        nbformat.validate(nb)
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({reason(error)}).") from None
    except DataError:
        raise
    except Exception:  # nbformat stumbles over foreign JSON in many ways
        raise DataError(f"{path.name} is not a Jupyter notebook.") from None
    cells: list[Any] = nb.cells
    return cells


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def sources(cells: Sequence[Any]) -> list[str]:
    """Return the code of cells."""
    return [cell["source"] for cell in cells if cell["cell_type"] == "code"]


def copy(notebook: Path, home: Path) -> Path:
    """Copy a learner's course into the home folder of a sandbox; return the notebook's folder.

    Of a copy of the course, this is its notebooks and data; of a notebook elsewhere, the files
    beside it. Links, hidden files and what is beyond the limits stay behind.
    """
    source = notebook.parent
    is_course = source.name == "notebooks"
    folder = home / "course" / "notebooks"
    budget = [COPIED, FILES]
    _copy_folder(source, folder, budget, deep=is_course)
    if is_course and (source.parent / "data").is_dir():
        _copy_folder(source.parent / "data", folder.parent / "data", budget, deep=True)
    return folder


def _copy_folder(source: Path, target: Path, budget: list[int], *, deep: bool) -> None:
    target.mkdir(parents=True)
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_dir(follow_symlinks=False) and deep:
            _copy_folder(Path(entry.path), target / entry.name, budget, deep=deep)
        elif entry.is_file(follow_symlinks=False):
            _copy_file(entry.path, target / entry.name, budget)


def _copy_file(source: str, target: Path, budget: list[int]) -> None:
    """Copy a file if it is within what is left of bytes and files."""
    with open(source, "rb", opener=_no_link) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > budget[0] or not budget[1]:
            return
        budget[0] -= status.st_size
        budget[1] -= 1
        with open(target, "wb") as to:
            shutil.copyfileobj(file, to)


def default_jobs() -> int:
    """Return how many notebooks run at the same time: each has several ranks."""
    from ..wire.processes import count_cores

    threads = variables.threads() or 1
    return max(1, count_cores() // (2 * threads))
