"""Find an exercise by its id. A notebook's exercises are loaded when one of them is needed.

A number can have two notebooks, ``01_….ipynb`` and its second half ``01b_….ipynb``: one module
has the exercises of both.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from ..errors import UsageError
from .exercise import Exercise

_MODULE = re.compile(r"nb(\d\d)\.py")


def numbers() -> list[str]:
    """List the numbers of the notebooks that have exercises: ``["00", "01", …]``."""
    files = sorted((Path(__file__).parent / "exercises").glob("nb*.py"))
    return [match[1] for file in files if (match := _MODULE.fullmatch(file.name))]


def of_notebook(number: str) -> tuple[Exercise, ...]:
    """Return the exercises of one number, by id: those of its notebook, or of its two halves."""
    module = importlib.import_module(f".exercises.nb{number}", __package__)
    exercises: tuple[Exercise, ...] = module.EXERCISES
    return exercises


def find(name: object) -> Exercise:
    """Return the exercise with an id such as ``"04-2"``.

    Raises
    ------
    UsageError
        If there is none; it says which there are.
    """
    if not isinstance(name, str):
        raise UsageError(f'An exercise is named by its id, as in "00-1", not {name!r}.')
    number = name.partition("-")[0]
    known = numbers()
    if number not in known:
        notebooks = ", ".join(known) or "none"
        raise UsageError(f"There is no exercise {name!r}; notebooks with exercises: {notebooks}.")
    exercises = {exercise.id: exercise for exercise in of_notebook(number)}
    if name not in exercises:
        ids = ", ".join(exercises)
        raise UsageError(f"There is no exercise {name!r}; notebook {number} has {ids}.")
    return exercises[name]
