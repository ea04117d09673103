"""The answers that tests try beside an exercise's stub and solution, read from
``tests/data/witnesses``.

Each exercise has a file. A heading says what the check has to say of the answers below it: the
beginning of a mistake's sentence, or of a general verdict; ``right`` stands over another right
answer. An answer is a change of the notebook's solution, or defines it anew:

>>> solution = "def average(x):\\n    dist.all_reduce(x)\\n    return x / world_size"
>>> change = "-    return x / world_size\\n+    return x"
>>> print(Witness("the sum", "You return", "diff", change).written(solution, "average"))
def average(x):
    dist.all_reduce(x)
    return x
>>> anew = "def average(x):\\n    return x.mean()"
>>> print(Witness("its own", "Every rank", "python", anew).written(solution, "average"))
def average(x):
    return x.mean()
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from labkit.course.exercise import Exercise
from tests.support.recordings import DATA

FOLDER = DATA / "witnesses"
#: The heading over right answers.
RIGHT = "right"
_ANSWER = re.compile(r"### (?P<name>[^\n]+)\n+```(?P<form>\w+)\n(?P<text>.*?)\n```$", re.M | re.S)


@dataclass(frozen=True)
class Witness:
    """An answer that shows what a check says.

    Attributes
    ----------
    name
        Unlike those of the exercise's other answers.
    says
        How the verdict begins that it has to get, or ``right``.
    form
        ``diff``: the text is a change of the solution, in hunks with ``@@`` between them. The
        lines that a hunk keeps or takes away occur once in the solution. Otherwise the text is
        the function or class in the place of the solution's, or a whole file.
    """

    name: str
    says: str
    form: str
    text: str

    def written(self, solution: str, answer: str) -> str:
        """Return the cell (or file) of this answer.

        Raises
        ------
        ValueError
            If the solution has not what is to be changed.
        """
        if self.form == "diff":
            return _changed(solution, self.text)
        if not answer.isidentifier():
            return self.text
        for node in ast.parse(solution).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == answer:
                lines = solution.split("\n")
                return "\n".join([*lines[: node.lineno - 1], self.text, *lines[node.end_lineno :]])
        raise ValueError(f"the solution does not define {answer}:\n{solution}")


def of(exercise: Exercise) -> dict[str, Witness]:
    """Return the witnesses of an exercise by name.

    Raises
    ------
    ValueError
        If two have the same name, or something in the file is no answer below a heading.
    """
    return _read(exercise.id)


@cache
def _read(name: str) -> dict[str, Witness]:
    return parse((FOLDER / f"{name}.md").read_text())


def wrong(exercise: Exercise) -> dict[str, Witness]:
    """Return the wrong answers among them."""
    return {name: found for name, found in of(exercise).items() if found.says != RIGHT}


def right(exercise: Exercise) -> Witness:
    """Return the right one."""
    (found,) = (found for found in of(exercise).values() if found.says == RIGHT)
    return found


def is_named(exercise: Exercise, witness: Witness) -> bool:
    """Return whether a mistake of the exercise describes it, not a general verdict."""
    return any(mistake.sentence.startswith(witness.says) for mistake in exercise.mistakes)


def parse(text: str) -> dict[str, Witness]:
    """Return what a file holds, by name; see `of`."""
    found: dict[str, Witness] = {}
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        says, _, answers = section.partition("\n")
        if rest := _ANSWER.sub("", answers).strip():
            raise ValueError(f"below {says!r} this is no answer:\n{rest}")
        for match in _ANSWER.finditer(answers):
            if match["name"] in found:
                raise ValueError(f"two answers have the name {match['name']!r}")
            found[match["name"]] = Witness(match["name"], says, match["form"], match["text"])
    return found


def _changed(solution: str, diff: str) -> str:
    lines = solution.split("\n")
    hunks = [_hunk(lines, list(hunk)) for hunk in _hunks(diff)]
    for begin, end, new in sorted(hunks, reverse=True):
        lines[begin:end] = new
    return "\n".join(lines)


def _hunks(diff: str) -> Iterator[Iterator[str]]:
    for is_border, hunk in groupby(diff.split("\n"), lambda line: line == "@@"):
        if not is_border:
            yield hunk


def _hunk(lines: list[str], hunk: list[str]) -> tuple[int, int, list[str]]:
    """Return where a hunk begins and ends in the solution, and what stands there then."""
    old = [line[1:] for line in hunk if not line.startswith("+")]
    new = [line[1:] for line in hunk if not line.startswith("-")]
    places = [n for n in range(len(lines)) if lines[n : n + len(old)] == old]
    if not old or len(places) != 1:
        text, solution = "\n".join(old), "\n".join(lines)
        times = f"{len(places)} times, not once"
        raise ValueError(f"the solution has this {times}:\n{text}\n{solution}")
    return places[0], places[0] + len(old), new
