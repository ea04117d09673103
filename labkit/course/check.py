"""Check an answer, give a hint, show a solution: what the learner calls."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter

from ..errors import WIDTH, UsageError
from . import catalogue, edition
from .exercise import HINTS, Exercise
from .judge import Result, Verdict, judge
from .report import report

_last: str | None = None  #: the exercise that was checked last
_given: Counter[str] = Counter()  #: hints of each exercise


def examine(exercise: Exercise) -> tuple[Result, Verdict]:
    """Try the answer to an exercise where it lives, and judge it."""
    if exercise.where == "notebook":
        from .in_notebook import try_in_notebook

        result = try_in_notebook(exercise)
    else:
        from .on_ranks import try_on_ranks

        result = try_on_ranks(exercise)
    return result, judge(result)


def check(name: str) -> None:
    """Try your answer to an exercise and print it beside what is expected.

    Parameters
    ----------
    name
        The exercise's id, such as ``"03-2"``.

    Raises
    ------
    UsageError
        If there is no such exercise, or nothing to check yet.
    LabStopped
        If the answer is for ranks and no lab is running.

    Examples
    --------
    An answer is what a ``%%px`` cell has defined; a function that is sent does as well.

    >>> import torch.distributed as dist
    >>> lab["neighbour"] = lambda: (dist.get_rank() + 1) % dist.get_world_size()
    >>> labkit.check("00-1")
    00-1  Name your neighbour
            yours  expected
    rank 0  1      1         ✓
    rank 1  2      2         ✓
    rank 2  3      3         ✓
    rank 3  0      0         ✓
    00-1 passed.
    """
    global _last
    exercise = catalogue.find(name)
    _last = exercise.id
    sys.stdout.write(report(*examine(exercise)))
    sys.stdout.flush()


def hint(name: str | None = None) -> None:
    """Print the next of three hints for an exercise: the one checked last if none is named.

    Raises
    ------
    UsageError
        If there is no such exercise, or none has been checked yet.

    Examples
    --------
    >>> labkit.hint("00-1")
    Hint 1 of 3 for 00-1: ...
    """
    exercise = _chosen(name, "hint")
    if _given[exercise.id] == HINTS:
        print(
            f'There are no more hints for {exercise.id}; labkit.solution("{exercise.id}") shows '
            "a solution."
        )
        return
    text = exercise.hints[_given[exercise.id]]
    _given[exercise.id] += 1
    head = f"Hint {_given[exercise.id]} of {HINTS} for {exercise.id}: "
    lines = (head + text).split("\n")
    for line in lines:  # lines of code stay as they are
        print(line if line.startswith(" ") else textwrap.fill(line, WIDTH, break_on_hyphens=False))


def solution(name: str | None = None) -> None:
    """Print a solution of an exercise, as the course's own notebook has it: the exercise checked
    last if none is named.

    Raises
    ------
    UsageError
        If there is no such exercise, or none has been checked yet.

    Examples
    --------
    >>> labkit.solution("00-1")
    %%px
    def neighbour():
        return (rank + 1) % world_size
    """
    exercise = _chosen(name, "solution")
    print(edition.solution(exercise.id))


def _chosen(name: str | None, function: str) -> Exercise:
    if name is None and _last is None:
        raise UsageError(f'No exercise has been checked yet; labkit.{function}("00-1") names one.')
    return catalogue.find(_last if name is None else name)
