"""A notebook of the course gets the metadata that nbgrader asks for, and stays as it is."""

from __future__ import annotations

import copy
from pathlib import Path

import nbformat
import pytest

from labkit import UsageError
from labkit.course import catalogue, edition, material
from labkit.teaching.nbgrader_export import assignment, write


@pytest.mark.parametrize("path", material.notebooks(), ids=lambda path: path.stem)
def test_every_check_is_a_test_of_one_point_below_its_answer(path: Path) -> None:
    nb = nbformat.read(path, as_version=4)
    before = copy.deepcopy(nb)
    made = assignment(nb)
    assert nb == before
    own = [cell for cell in made.cells if "nbgrader" in cell.metadata]
    grades = [cell for cell in own if cell.metadata.nbgrader.grade]
    ids = [cell.metadata.nbgrader.grade_id for cell in own]
    assert len(set(ids)) == len(ids)
    checked = edition.exercises_in(path.read_bytes())
    assert [cell.metadata.nbgrader.grade_id for cell in grades] == [f"check-{id}" for id in checked]
    assert all(cell.metadata.nbgrader.points == 1 for cell in grades)
    for cell, name in zip(grades, checked, strict=True):
        assert cell.source.startswith(f'assert labkit.check("{name}"), ')
    # What nbgrader would clear stands in cells that it may clear, and nowhere else.
    marked = [cell for cell in made.cells if edition.has_solution(cell.source)]
    assert [cell for cell in own if cell.metadata.nbgrader.solution] == marked
    files = [id for id in checked if catalogue.find(id).where == "file"]
    assert len(marked) == len([c for c in nb.cells if edition.has_solution(c.source)]) - len(files)
    nbformat.validate(made)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    own = tmp_path / "own.ipynb"
    check = nbformat.v4.new_code_cell('labkit.check("my1")')
    nbformat.write(nbformat.v4.new_notebook(cells=[check]), own)
    write(str(own), tmp_path / "source")
    (cell,) = nbformat.read(tmp_path / "source" / "own.ipynb", as_version=4).cells
    assert cell.source == 'assert labkit.check("my1"), "my1 has not passed"'
    with pytest.raises(UsageError, match="is the notebook itself"):
        write(str(own), tmp_path)
    with pytest.raises(UsageError, match=r"There is no notebook 77\."):
        write("77", tmp_path)
    nbformat.write(nbformat.v4.new_notebook(), own)
    with pytest.raises(UsageError, match="has no checks"):
        write(str(own), tmp_path / "source")
