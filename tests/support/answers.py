"""The answers to the exercises of the course, written out: each is a change of the solution in its
notebook."""

from __future__ import annotations

import runpy
import textwrap
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import nbformat

from labkit.course import catalogue, edition, material
from labkit.course.answers import Answer, whole
from labkit.course.exercise import Exercise, Wrong


@cache
def definitions(number: str) -> dict[str, str]:
    """Return the defining cells of a number's exercises by id, of both halves if it has two."""
    found: dict[str, str] = {}
    for path in material.notebooks(number):
        found.update(edition.definitions(nbformat.read(path, as_version=4)))
    return found


def without_px(source: str) -> str:
    """Return a cell without its first line, if that is ``%%px``."""
    first, _, rest = source.partition("\n")
    return rest if first.startswith("%%px") else source


def stub(exercise: Exercise) -> str:
    """Return what the learner gets."""
    return without_px(edition.stub(definitions(exercise.id[:2])[exercise.id]))


def solution(exercise: Exercise) -> str:
    """Return the solution of the notebook."""
    return without_px(edition.solved(definitions(exercise.id[:2])[exercise.id]))


@cache
def corpus(name: str) -> dict[str, Any]:
    """Return the answers of an exercise that does not have them in its own file yet."""
    path = Path(__file__).parents[1] / "course" / "answers" / name[:2] / f"{name}.py"
    return runpy.run_path(str(path)) if path.is_file() else {}


def with_answers(exercise: Exercise) -> Exercise:
    """Return an exercise with those answers."""
    if not (found := corpus(exercise.id)):
        return exercise
    wrong = {name: Wrong(whole(text), said) for name, (text, said) in found["WRONG"].items()}
    own, setup = whole(found["ANOTHER"]), found.get("SETUP", "")
    return replace(exercise, also_wrong=wrong, another=own, setup=setup)


def written(exercise: Exercise, answer: Answer) -> str:
    """Return the cell of an answer that is a change of the solution."""
    return answer.written(solution(exercise), exercise.answer)


def setup(exercise: Exercise) -> str:
    """Return the cell that has to run before an answer, "" if there is none."""
    return textwrap.dedent(exercise.setup).strip("\n")


EXERCISES = {
    exercise.id: with_answers(exercise)
    for number in catalogue.numbers()
    for exercise in catalogue.of_notebook(number)
}
