"""Find an exercise by its id: 03-2 is ``exercises/nb03/ex2.py``, which is loaded when it is needed.

An id that begins with a letter is a teacher's own (``own_exercises``).
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)

from ..base.errors import UsageError
from . import own_exercises
from .exercise import OWN_ID

if TYPE_CHECKING:
    from .exercise import Exercise

_FOLDER, _FILE = re.compile(r"nb(\d\d)"), re.compile(r"ex(\d+)\.py")
_HOME = Path(__file__).parent / "exercises"
#: The call of a function that takes an id, up to the cursor; and the id so far.
_CALL = re.compile(r"""(?:^|[\W_])(?:check|hint|solution)\(\s*["']([\w-]*)$""")


def numbers() -> list[str]:
    """List the numbers of the notebooks that have exercises: ``["00", "01", …]``."""
    return [match[1] for path in sorted(_HOME.iterdir()) if (match := _FOLDER.fullmatch(path.name))]


def ids(number: str) -> list[str]:
    """List the ids of the exercises of a notebook, by its number."""
    files = (_FILE.fullmatch(path.name) for path in (_HOME / f"nb{number}").iterdir())
    return [f"{number}-{own}" for own in sorted(int(match[1]) for match in files if match)]


def of_notebook(number: str) -> tuple[Exercise, ...]:
    """Return the exercises of one number, by id."""
    return tuple(map(_load, ids(number)))


def find(name: object) -> Exercise:
    """Return the exercise with an id such as ``"03-2"``; UsageError says which there are."""
    if not isinstance(name, str):
        raise UsageError(f'An exercise is named by its id, as in "00-1", not {name!r}.')
    if OWN_ID.fullmatch(name):
        return own_exercises.find(name)
    own = ids(check_number(name.partition("-")[0], f"exercise {name!r}"))
    if name not in own:
        number, others = name.partition("-")[0], ", ".join(own)
        raise UsageError(f"There is no exercise {name!r}; notebook {number} has {others}.")
    own_exercises.refuse_hidden(name)
    return _load(name)


def check_number(number: object, wanted: str = "") -> str:
    """Return the number of a notebook that has exercises; UsageError says which have.

    ``wanted`` is what the error says is missing, if it is not the notebook.
    """
    known = numbers()
    if isinstance(number, str) and number in known:
        return number
    missing = wanted or f"notebook {number!r} with exercises"
    notebooks = ", ".join(known) or "none"
    raise UsageError(f"There is no {missing}; notebooks with exercises: {notebooks}.")


def _load(name: str) -> Exercise:
    number, _, own = name.partition("-")
    module = importlib.import_module(f".exercises.nb{number}.ex{own}", __package__)
    exercise: Exercise = module.EXERCISE
    return exercise


@context_matcher(identifier="labkit.exercises")
def complete(context: CompletionContext) -> SimpleMatcherResult:
    """Return the ids that begin as the text before the cursor does."""
    found = _CALL.search(context.line_with_cursor[: context.cursor_position])
    if found is None:
        return SimpleMatcherResult(completions=[])
    course = [name for number in numbers() for name in ids(number)]
    every = [*course, *own_exercises.ids()]
    fit = [SimpleCompletion(name, type="id") for name in every if name.startswith(found[1])]
    return SimpleMatcherResult(
        completions=fit, matched_fragment=found[1], ordered=True, suppress=bool(fit)
    )
