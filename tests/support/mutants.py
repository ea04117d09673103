"""Break the solutions of exercises on purpose, in one small place each.

Most ways are cosmic-ray's operators: another operator, another number, a loop that never runs, a
condition that is turned round. Two are added, as forgetting is what learners do most: a statement
that is left out, and a keyword argument that is. The check of the exercise should refuse every
mutant that does anything else than the solution.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from labkit.course import edition
from labkit.course.exercise import Exercise
from tests.support import answers

#: Operators that are left out: they change what a type checker reads, or an error that nobody
#: looks at, not what a function gives.
LEFT_OUT = ("ExceptionReplacer", "RemoveDecorator", "VariableInserter", "VariableReplacer")
#: What takes the place of each operator: one of another kind, and its nearest neighbour. All
#: pairs would be ten times as many mutants that say the same.
INSTEAD = {
    "Add": ("Sub",), "Sub": ("Add",), "Mul": ("Div", "Add"), "Div": ("Mul", "FloorDiv"),
    "FloorDiv": ("Div", "Mul"), "Mod": ("FloorDiv", "Add"), "Pow": ("Mul",),
    "BitAnd": ("BitOr",), "BitOr": ("BitAnd",), "BitXor": ("BitOr",),
    "Lt": ("LtE", "GtE"), "LtE": ("Lt", "Gt"), "Gt": ("GtE", "LtE"), "GtE": ("Gt", "Lt"),
    "Eq": ("NotEq",), "NotEq": ("Eq",), "Is": ("IsNot",), "IsNot": ("Is",),
    "In": ("NotIn",), "NotIn": ("In",),
}  # fmt: skip
FAMILIES = ("ReplaceBinaryOperator", "ReplaceComparisonOperator")


@dataclass(frozen=True)
class Mutant:
    """A solution that is changed in one place."""

    exercise: str
    change: str  #: "old line → new line"
    source: str  #: the whole cell, without its magic

    @property
    def name(self) -> str:
        return f"{self.exercise}: {self.change}"


def operators() -> list[str]:
    """List the names of the operators that are used."""
    return [name for name in operator_names() if _is_used(name.removeprefix("core/"))]


def _is_used(name: str) -> bool:
    family, *pair = name.split("_")
    if family in FAMILIES:
        return len(pair) == 2 and pair[1] in INSTEAD.get(pair[0], ())
    if family == "ReplaceUnaryOperator":
        return pair[0] == "Delete" or pair == ["USub", "UAdd"]
    return family not in LEFT_OUT


def mutants(exercise: Exercise) -> list[Mutant]:
    """Return the mutants of an exercise's solution, in the order of its lines.

    Only what stands between the marks of the solution is changed.
    """
    marked = answers.marked(exercise)
    solution = answers.solution(exercise)
    lines = marked.split("\n")
    first, end = (i for i, line in enumerate(lines) if edition.is_mark(line))
    last = end - 1
    found: dict[str, Mutant] = {}
    python = exercise.is_python
    for source in _changed(solution) if python else _shortened(solution):
        where, change = _difference(solution, source)
        if where and all(first <= line < last for line in where):
            same = ast.unparse(ast.parse(source)) if python else source
            found.setdefault(same, Mutant(exercise.id, change, source))
    order = {line: i for i, line in enumerate(solution.split("\n"))}
    return sorted(found.values(), key=lambda m: order.get(m.change.split(" → ")[0], 0))


def _changed(source: str) -> Iterator[str]:
    for name in operators():
        operator, occurrence = get_operator(name)(), 0
        while (mutated := mutate_code(source, operator, occurrence)) is not None:
            occurrence += 1
            if _compiles(mutated) and mutated != source:
                yield mutated
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Assert | ast.Delete):
            yield _replaced(source, node, "pass")
        elif isinstance(node, ast.Return) and node.value is not None:
            yield _replaced(source, node, "return None")
        elif isinstance(node, ast.Call):
            # on CPUs every device is the same one
            kept = [keyword for keyword in node.keywords if keyword.arg != "device"]
            yield from (_without(source, node, keyword) for keyword in kept)


def _shortened(source: str) -> Iterator[str]:
    """Yield a shell's script without each of its lines."""
    lines = source.split("\n")
    for i, line in enumerate(lines):
        if line.strip():
            yield "\n".join([*lines[:i], *lines[i + 1 :]])


def _replaced(source: str, node: ast.stmt | ast.expr, text: str) -> str:
    """Return a source with another text in the place of a node."""
    lines = source.split("\n")
    assert node.end_lineno is not None
    # columns of the tree count bytes
    head = lines[node.lineno - 1].encode()[: node.col_offset].decode()
    tail = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
    return "\n".join([*lines[: node.lineno - 1], head + text + tail, *lines[node.end_lineno :]])


def _without(source: str, call: ast.Call, keyword: ast.keyword) -> str:
    """Return a source in which a call lacks one keyword argument."""
    others = [k for k in call.keywords if k is not keyword]
    return _replaced(source, call, ast.unparse(ast.Call(call.func, call.args, others)))


def _compiles(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _difference(old: str, new: str) -> tuple[list[int], str]:
    """Return the numbers of the lines that differ, and what became of them."""
    before, after = old.split("\n"), new.split("\n")
    where, gone, came = [], [], []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, before, after).get_opcodes():
        if tag != "equal":
            where += range(i, j)
            gone += before[i:j]
            came += after[k:m]
    return where, f"{' ⏎ '.join(map(str.strip, gone))} → {' ⏎ '.join(map(str.strip, came))}"
