"""The answers to the exercises of the course, as the cells or files that learners would write."""

from __future__ import annotations

import textwrap
from functools import cache

import nbformat

from labkit.course import catalogue, edition, material
from labkit.course.exercise import Exercise
from tests.support.witnesses import Witness

EXERCISES = {
    exercise.id: exercise
    for number in catalogue.numbers()
    for exercise in catalogue.of_notebook(number)
}


@cache
def definitions(number: str) -> dict[str, str]:
    """Return the defining cells of a number's exercises by id, of both halves if it has two."""
    found: dict[str, str] = {}
    for path in material.notebooks(number):
        found.update(edition.definitions(nbformat.read(path, as_version=4)))
    return found


def without_magic(source: str) -> str:
    """Return a cell without its first line, if that is ``%%px`` or ``%%writefile``."""
    first, _, rest = source.partition("\n")
    return rest if first.startswith(("%%px", edition.WRITES_FILE)) else source


def stub(exercise: Exercise) -> str:
    """Return what the learner gets."""
    return without_magic(edition.stub(definitions(exercise.id[:2])[exercise.id]))


def marked(exercise: Exercise) -> str:
    """Return the solution of the notebook with the two marks around what a learner writes."""
    return without_magic(definitions(exercise.id[:2])[exercise.id])


def solution(exercise: Exercise) -> str:
    """Return the solution of the notebook."""
    return without_magic(edition.solved(definitions(exercise.id[:2])[exercise.id]))


def written(exercise: Exercise, witness: Witness) -> str:
    """Return the cell of an answer that is a change of the solution."""
    return witness.written(solution(exercise), exercise.answer)


def setup(exercise: Exercise) -> str:
    """Return the cell that has to run before an answer, "" if there is none."""
    return textwrap.dedent(exercise.setup).strip("\n")
