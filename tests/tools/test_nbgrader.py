"""nbgrader makes an assignment of a notebook of the course, and grades what is handed in.

nbgrader is no part of the lock. ``.ci/test-with --extra class -- tests/tools/test_nbgrader.py``
installs it in an environment of its own and runs this, as CI does each night (job ``nbgrader``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import pytest

from labkit.course import edition, material
from labkit.teaching import nbgrader_export
from tests.support.teaching_page import blocks

(NOTEBOOK,) = material.notebooks("00")
#: What docs/TEACHING.md asks teachers to write.
(CONFIG,) = blocks("c = get_config()")
#: Exercises that are solved in what is handed in; the others stay as delivered.
SOLVED = ("00-1", "00-2")


def run(folder: Path, command: str, *args: str) -> None:
    """Run a command of nbgrader in the folder of a course."""
    tool = [sys.executable, "-m", "nbgrader", command, *args]
    # nbgrader runs alembic by its name, as in an environment that is activated.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    environment = {**os.environ, "HOME": str(folder), "LABKIT_RANKS": "2", "PATH": path}
    done = subprocess.run(tool, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("nbgrader") is None,
    reason="nbgrader is not installed: .ci/test-with --extra class",
)
def test_both_commands_work_on_a_notebook_of_the_course(tmp_path: Path) -> None:
    from nbgrader.api import Gradebook

    (tmp_path / "nbgrader_config.py").write_text(CONFIG)
    nbgrader_export.write("00", tmp_path / "source" / "00")
    run(tmp_path, "generate_assignment", "00")
    delivered = nbformat.read(tmp_path / "release" / "00" / NOTEBOOK.name, as_version=4)
    assert not any(edition.is_mark(line) for line in lines(delivered))
    handed_in = tmp_path / "submitted" / "ada" / "00" / NOTEBOOK.name
    handed_in.parent.mkdir(parents=True)
    nbformat.write(with_answers(delivered), handed_in)
    run(tmp_path, "autograde", "00")
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        (graded,) = book.find_submission("00", "ada").notebooks
        scores = {grade.cell.name: grade.auto_score for grade in graded.grades}
    assert scores == {f"check-00-{k}": float(f"00-{k}" in SOLVED) for k in range(1, 5)}


def lines(nb: Any) -> list[str]:
    return [line for cell in nb.cells for line in cell.source.split("\n")]


def with_answers(nb: Any) -> Any:
    """Write the course's solutions into the cells above the checks, as a learner would."""
    answer = None
    for cell in nb.cells:
        own = cell.metadata.get("nbgrader", {})
        if own.get("solution"):
            answer = cell
        name = own.get("grade_id", "").removeprefix("check-")
        if name in SOLVED and answer is not None:
            answer.source = edition.solution(name)
    return nb
