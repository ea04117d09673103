"""Write an answer to an exercise as a change of the solution in the notebook.

A wrong answer stands beside the mistake that it shows: as an edit, where it differs in a few
places; with another body; or whole; in the place of a file stands another one. What is written is
real code, which is run and linted.

>>> solution = "def average(x):\\n    dist.all_reduce(x)\\n    return x / world_size"
>>> print(edit("return x / world_size", "return x").written(solution, "average"))
def average(x):
    dist.all_reduce(x)
    return x
>>> print(body("return x.mean()").written(solution, "average"))
def average(x):
    return x.mean()
"""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from .script_text import is_python


class Answer(Protocol):
    """An answer that is written out when the solution is known."""

    def written(self, solution: str, name: str) -> str:
        """Return the cell of an answer that defines ``name`` in another way than the solution.

        Raises
        ------
        ValueError
            If the solution has not what is to be changed.
        """
        ...


def edit(*texts: str) -> Answer:
    """Replace parts of the solution: ``edit(old, new, old, new, …)``.

    Each ``old`` has to occur once in the solution. A text of several lines begins at the start of
    a line and is written as if that were not indented; lines of which nothing is left go.

    Raises
    ------
    ValueError
        If there is no pair, or a text without its other half.
    """
    if not texts or len(texts) % 2:
        raise ValueError(f"an edit has pairs of texts, old and new, not {len(texts)} texts")
    clean = [_block(text) for text in texts]
    return _Edit(tuple(zip(clean[::2], clean[1::2], strict=True)))


def body(text: str) -> Answer:
    """Give the function (or class) of the solution another body."""
    return _Body(_block(text))


def whole(text: str) -> Answer:
    """Define the answer anew, where the solution defines it; the rest of the cell stays."""
    return _Whole(_block(text))


def instead(text: str) -> Answer:
    """Write another file, of an exercise whose answer is one."""
    return _Instead(_block(text))


def _block(text: str) -> str:
    """Return the text of a triple-quoted string, without the indentation of its surroundings."""
    return textwrap.dedent(text).strip("\n") if text.startswith("\n") else text


def _indented(text: str, indent: str) -> str:
    """Indent all lines but the first."""
    first, *others = text.split("\n")
    return "\n".join([first, *(indent + line if line else "" for line in others)])


def _indent_at(source: str, place: int) -> str:
    """Return the white space that the line at a place begins with."""
    line = source[source.rfind("\n", 0, place) + 1 :]
    return line[: len(line) - len(line.lstrip(" "))]


@dataclass(frozen=True)
class _Edit:
    pairs: tuple[tuple[str, str], ...]

    def written(self, solution: str, name: str) -> str:
        changes = sorted((*self._find(solution, old), new) for old, new in self.pairs)
        for (_, end, _), (begin, _, _) in pairwise(changes):
            if begin < end:
                raise ValueError(f"{name}: two edits change the same place")
        for begin, end, new in reversed(changes):
            head, tail = solution[:begin], solution[end:]
            if not new and not head.rpartition("\n")[2].strip() and tail[:1] in ("\n", ""):
                solution = head.rpartition("\n")[0] + tail
            else:
                solution = head + _indented(new, _indent_at(solution, begin)) + tail
        _parse(solution, name)
        return solution

    @staticmethod
    def _find(solution: str, old: str) -> tuple[int, int]:
        """Return where a text begins and ends in the solution."""
        found = []
        for begin in range(len(solution)):
            text = _indented(old, _indent_at(solution, begin)) if "\n" in old else old
            if solution.startswith(text, begin):
                found.append((begin, begin + len(text)))
        if len(found) != 1:
            raise ValueError(f"the solution has {old!r} {len(found)} times, not once:\n{solution}")
        return found[0]


@dataclass(frozen=True)
class _Body:
    text: str

    def written(self, solution: str, name: str) -> str:
        definition = _definition(solution, name)
        indent = " " * (definition.col_offset + 4)
        return _with_lines(
            solution,
            definition.body[0].lineno,
            definition.end_lineno,
            textwrap.indent(self.text, indent),
        )


@dataclass(frozen=True)
class _Whole:
    text: str

    def written(self, solution: str, name: str) -> str:
        definition = _definition(solution, name)
        return _with_lines(solution, definition.lineno, definition.end_lineno, self.text)


@dataclass(frozen=True)
class _Instead:
    text: str

    def written(self, solution: str, name: str) -> str:
        _parse(self.text, name)
        return self.text


def _parse(text: str, name: str) -> None:
    """Make sure that an answer is Python, unless it is a file of something else."""
    if is_python(name):
        ast.parse(text)


def _definition(solution: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    for node in ast.parse(solution).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
    raise ValueError(f"the solution does not define {name}:\n{solution}")


def _with_lines(source: str, first: int, last: int | None, text: str) -> str:
    """Return a source with another text in the place of some of its lines, counted from 1."""
    lines = source.split("\n")
    changed = "\n".join([*lines[: first - 1], text, *lines[last:]])
    ast.parse(changed)
    return changed
