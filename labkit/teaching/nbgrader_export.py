"""Write a solved notebook as nbgrader's source of an assignment.

nbgrader knows the two marks around a solution, but it also asks for metadata: which cells a
learner changes, and which ones give points. Each check becomes a test that gives one point.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

from ..base.errors import DataError, UsageError
from ..base.files import reason, write_whole
from ..course import catalogue, material
from ..course.edition import CHECK, FROM, has_solution, is_mark, stub

#: Of nbgrader's metadata.
SCHEMA = 3


def assignment(nb: Any) -> Any:
    """Return a copy of a solved notebook with nbgrader's metadata; the notebook stays as it is.

    A cell with a solution is one that the learner changes. A check is ``assert labkit.check(…)``, a
    locked test of one point. Where a learner begins with a file of the course, the copy has that
    file instead of the solution, because nbgrader has the same stub for all solutions.

    Raises
    ------
    UsageError
        If the notebook has no checks.
    """
    nb = copy.deepcopy(nb)
    seen: set[str] = set()
    answers = 0
    for cell in nb["cells"]:
        cell["metadata"].pop("nbgrader", None)
        if cell["cell_type"] != "code":
            continue
        cell["outputs"], cell["execution_count"] = [], None
        if has_solution(cell["source"]):
            if any(FROM in line for line in cell["source"].split("\n") if is_mark(line)):
                cell["source"] = stub(cell["source"])
                continue
            answers += 1
            cell["metadata"]["nbgrader"] = _metadata(f"answer-{answers}", solution=True)
        elif (match := CHECK.search(cell["source"])) and match[1] not in seen:
            seen.add(match[1])
            cell["source"] = CHECK.sub(_as_test, cell["source"], count=1)
            cell["metadata"]["nbgrader"] = _metadata(f"check-{match[1]}", grade=True)
    if not seen:
        raise UsageError('The notebook has no checks such as labkit.check("00-1").')
    return nb


def _as_test(match: Any) -> str:
    return f'assert {match[0]}, "{match[1]} has not passed"'


def _metadata(grade_id: str, *, grade: bool = False, solution: bool = False) -> dict[str, Any]:
    points = {"points": 1} if grade else {}
    return {"schema_version": SCHEMA, "grade_id": grade_id, "grade": grade, "solution": solution,
            "locked": grade, "task": False, **points}  # fmt: skip


def write(notebook: str, output: Path) -> str:
    """Write the copies of a notebook, or of those with a number; say in a sentence what was done.

    Parameters
    ----------
    notebook
        A file, or the number of a notebook of the course, such as ``"00"``.
    output
        A folder, or the file if there is one notebook.

    Raises
    ------
    UsageError
        If there is no such notebook, or the copy would replace it.
    DataError
        If it cannot be read or written.
    """
    sources = list(_sources(notebook))
    folder = output.suffix != ".ipynb"
    if not folder and len(sources) > 1:
        raise UsageError(f"{notebook} is {len(sources)} notebooks: --output has to be a folder.")
    targets = [output / source.name if folder else output for source in sources]
    for source, target in zip(sources, targets, strict=True):
        if target.exists() and target.samefile(source):
            raise UsageError(f"{target} is the notebook itself: --output has to be another file.")
        content = nbformat.writes(assignment(_read(source))) + "\n"
        try:
            write_whole(target, content.encode())
        except OSError as error:
            raise DataError(f"{target} cannot be written ({reason(error)}).") from None
    return f"For nbgrader: {', '.join(map(str, targets))}"


def _sources(notebook: str) -> Iterator[Path]:
    if notebook in catalogue.numbers():
        yield from material.notebooks(notebook)
    elif (path := Path(notebook)).is_file():
        yield path
    else:
        raise UsageError(f"There is no notebook {notebook}.")


def _read(path: Path) -> Any:
    try:
        return nbformat.read(path, as_version=4)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({reason(error)}).") from None
    except Exception:  # nbformat raises what json, its schema and its own code raise
        raise DataError(f"{path} is not a notebook that can be read.") from None
