"""Make the learner's edition of a notebook: the solved one, without solutions and outputs.

The solved notebook is the only source. A solution stands between two lines, ``### BEGIN
SOLUTION`` and ``### END SOLUTION``; the learner gets a stub of its size in that place. No cell has
outputs: they would answer what the text asks to predict. Of a cell that writes a file, with
``%%writefile``, the first line may be ``### BEGIN SOLUTION from scripts/single.py``: then that file
of the course takes the place of the solution, for the learner to change. Where its length would
give a solution away, the first line says what the stub says: ``### BEGIN SOLUTION of 5 to 16
lines``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from ..base import versions
from ..base.errors import DataError, UsageError
from .material import file, notebooks

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
#: Behind the first mark: the file that the learner begins with, or how many lines the stub names.
FROM = " from "
LENGTH = re.compile(r" of (\d+ to \d+) lines")
#: What a cell begins with that writes a file.
WRITES_FILE = "%%writefile "
#: The number of the notebook that ends the course; those after it are for reference.
LAST = "21"
#: What a learner finds at its end, above a table of all exercises.
END_OF_COURSE = """## What you have done

The table shows every exercise of the course, and the line below it where to go on. You can run \
`labkit.progress()` in any notebook of your copy."""
#: The cell that checks an exercise.
CHECK = re.compile(r"""^labkit\.check\(["']([\w-]+)["']\)""", re.MULTILINE)
#: The same inside the JSON of a notebook file.
_CHECK_IN_FILE = re.compile(rb"""labkit\.check\((?:\\"|')([\w-]+)(?:\\"|')\)""")


def problem_of(source: str) -> str | None:
    """Return what is wrong with the solution region of a cell; None if it has a good one or
    none."""
    marks = [line.strip() for line in source.split("\n") if is_mark(line)]
    if (BEGIN in source or END in source) and list(map(_plain, marks)) != [BEGIN, END]:
        return f"it needs one line {BEGIN!r} and below it one line {END!r}"
    if marks:
        start = marks[0].partition(FROM)[2]
        if start and not source.startswith(WRITES_FILE):
            return f"only a cell that begins with {WRITES_FILE!r} begins as a file"
        if start and not file(start).is_file():
            return f"the course has no file {start}"
        _, solution, _ = _split(source)
        if not any(line.strip() for line in solution):
            return "the solution is empty"
    return None


def is_mark(line: str) -> bool:
    """Return whether a line is one of the two marks."""
    return _plain(line.strip()) in (BEGIN, END)


def _plain(mark: str) -> str:
    """Return a mark without what stands behind it."""
    return LENGTH.sub("", mark.partition(FROM)[0])


def _split(source: str) -> tuple[list[str], list[str], list[str]]:
    """Return the lines before the region, of the solution, and after it."""
    lines = source.split("\n")
    begin = next(i for i, line in enumerate(lines) if is_mark(line))
    end = next(i for i, line in enumerate(lines) if line.strip() == END)
    return lines[:begin], lines[begin + 1 : end], lines[end + 1 :]


def has_solution(source: str) -> bool:
    """Return whether a cell has a solution region."""
    return BEGIN in source or END in source


def says_something(line: str) -> bool:
    """Return whether a line says anything to a machine. Slurm reads comments that begin with
    ``#SBATCH``."""
    return bool(line.strip()) and (line.startswith("#SBATCH") or not line.lstrip().startswith("#"))


def stub(source: str) -> str:
    """Return a cell with its solution replaced by a stub that says how many lines it took; raise
    DataError if the region is not well formed."""
    if problem := problem_of(source):
        raise DataError(f"A solution of the course is not marked well: {problem}.")
    before, solution, after = _split(source)
    code = [line for line in solution if says_something(line)]
    marker = source.split("\n")[len(before)]
    if start := marker.partition(FROM)[2].strip():
        said = f"# Your turn: about {len(code)} lines. This is {start}, to be changed."
        text = file(start).read_text("utf-8").rstrip("\n").split("\n")
        if text[0] in before:  # a first line that has to be the first of the learner's file too
            text = text[1:]
        return "\n".join([*before, said, *text, *after])
    indent = marker[: len(marker) - len(marker.lstrip())]
    lines = f"{len(code)} line{'' if len(code) == 1 else 's'}"
    if length := LENGTH.search(marker):
        lines = f"{length[1]} lines"
    return "\n".join([*before, f"{indent}# Your turn: about {lines}.", f"{indent}...", *after])


def solved(source: str) -> str:
    """Return a cell with its solution and without the two marks."""
    before, solution, after = _split(source)
    return "\n".join([*before, *solution, *after])


def learners(nb: Any) -> Any:
    """Return the learner's edition of a notebook node; the node itself stays as it is."""
    nb = copy.deepcopy(nb)
    cells = [cell for cell in nb["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        if has_solution(cell["source"]):
            cell["source"] = stub(cell["source"])
        cell["outputs"], cell["execution_count"] = [], None
    return nb


def delivered(name: str, content: bytes) -> bytes:
    """Return what a learner gets for a file of the course, which is the file itself unless it is
    a notebook with cells."""
    if not name.endswith(".ipynb") or b'"cell_type"' not in content:
        return content
    import nbformat

    nb = learners(nbformat.reads(content.decode(), as_version=4))
    if name.startswith(f"notebooks/{LAST}_"):
        # Their ids are not drawn: equal content is the same file for the next delivery.
        nb.cells.append(nbformat.v4.new_markdown_cell(END_OF_COURSE, id="what-you-have-done"))
        nb.cells.append(nbformat.v4.new_code_cell("labkit.progress()", id="progress"))
    return (nbformat.writes(nb) + "\n").encode()


def exercises_in(content: bytes) -> list[str]:
    """List the ids of the exercises that a notebook file has a check for, in its order."""
    return list(dict.fromkeys(match.decode() for match in _CHECK_IN_FILE.findall(content)))


def definitions(nb: Any) -> Iterator[tuple[str, str]]:
    """Yield (id, source of the defining cell) of the exercises: the last cell with a solution
    before each check."""
    source = None
    for cell in nb["cells"]:
        if cell["cell_type"] != "code":
            continue
        if has_solution(cell["source"]):
            source = cell["source"]
        elif (match := CHECK.search(cell["source"])) and source is not None:
            yield match[1], source
            source = None


def solution(exercise: str) -> str:
    """Return the cell that solves an exercise, from the course's own notebook."""
    versions.need("course", "labkit.solution", "nbformat")
    import nbformat

    for path in notebooks(exercise.partition("-")[0]):
        for found, source in definitions(nbformat.read(path, as_version=4)):
            if found == exercise:
                return solved(source)
    raise UsageError(f"The course has no solution of exercise {exercise}.")
