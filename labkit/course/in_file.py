"""Try an answer that is a file beside the notebook: a script, which is started as at work."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from ..base.errors import DataError, UsageError
from ..base.files import reason, write_whole
from . import material
from .compare import same
from .edition import says_something
from .exercise import Exercise, Failed
from .result import Result
from .script_start import StartFailed

#: What a file's trial yields: each part's name, and what was found.
Told: TypeAlias = Iterable[tuple[str, dict[str, Any]]]


def try_file(
    exercise: Exercise, follow: Callable[[Exercise, Told], Result] | None = None
) -> Result:
    """Try the file that a learner has written, part by part; stop at the first that differs. Raise
    UsageError if there is no such file.

    ``follow`` makes the result of what the trial yields; None: :func:`compare_parts`.
    """
    path = Path(exercise.answer)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"There is no {exercise.answer} beside this notebook yet: run the cell of exercise "
            f"{exercise.id}, which writes it, first."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"{exercise.answer} cannot be read ({why}).") from None
    means = _means if exercise.is_python else _says
    try:
        found = means(text)
    except (SyntaxError, ValueError) as error:
        return _did_not_start(exercise, error)
    if found in map(means, ("", "...", begins_as(exercise))):
        return Result(exercise, 1, [None], [None], found="unwritten")
    trial: Callable[[Any, Any], Told] = exercise.trial
    return (follow or compare_parts)(exercise, trial(path, exercise.seconds))


def begins_as(exercise: Exercise) -> str:
    """Return the text that the file of an exercise begins as."""
    return material.file(exercise.start).read_text(encoding="utf-8")


def keep(exercise: Exercise, text: str) -> str:
    """Write a text where the learner's file is; return the name that a file of theirs has now,
    "" if there was none."""
    path = Path(exercise.answer)
    try:
        kept = ""
        if path.exists() and path.read_text(encoding="utf-8") != text:
            own = path.with_suffix(f".yours{path.suffix}")
            path.replace(own)
            kept = own.name
        write_whole(path, text.encode())
    except OSError as error:
        raise DataError(f"{path} cannot be written ({reason(error)}).") from None
    return kept


def _says(text: str) -> str:
    """Return what a script that is no Python says, without empty lines and comments."""
    return "\n".join(line.rstrip() for line in text.split("\n") if says_something(line))


def _means(text: str) -> str:
    """Return what a script does, as text: without its comments and its docstring."""
    tree = ast.parse(text)
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    return "\n".join(map(ast.dump, body))


def _did_not_start(exercise: Exercise, error: SyntaxError | ValueError) -> Result:
    """Return the sentence that the file is no Python."""
    line = (error.text or "").strip() if isinstance(error, SyntaxError) else ""
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    where = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    failed = Failed(type(error).__name__, said, (line,) if line else ())
    note = f"{exercise.answer}{where}: {failed.text()}"
    return Result(exercise, 1, [failed], [None], notes=[note])


def compare_parts(exercise: Exercise, told: Told) -> Result:
    """Compare each part with the expected one, up to the first that differs."""
    expected: dict[str, dict[str, Any]] = exercise.expected()
    parts: list[tuple[str, bool]] = []
    yours: Any = None
    wanted: Any = None
    try:
        for part, found in told:
            yours, wanted = found, expected[part]
            parts.append((part, same(yours, wanted)))
            if not parts[-1][1]:
                break
    except StartFailed as error:
        part = list(expected)[len(parts)]
        parts.append((part, False))
        failed = replace(error.failed, part=part)
        return Result(exercise, 1, [failed], [None], notes=error.notes, parts=parts,
                      waited=f"{error.waited}\n{part}")  # fmt: skip
    return Result(exercise, 1, [yours], [wanted], parts=parts)
