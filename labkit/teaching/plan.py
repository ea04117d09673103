"""Plan the run of a learner's notebook: which cells run, and after which an answer is tried.

A notebook's own cells that check are not needed for it: an answer is tried after the last cell that
defines it, and where the learner has checked it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..course.edition import CHECK, WRITES_FILE

#: What only asks labkit: cells of nothing else do not run.
ASKS = ("check", "hint", "solution", "progress")
#: Cells that are programs of their own, from which no answer takes anything.
PROGRAM = "%%torchrun"
#: Tags of cells that need not run: nothing depends on them.
SKIPPED = {"costly", "nbval-skip"}
_START = re.compile(r"labkit\.start\((\d+)")
_CHECK = re.compile(r"""labkit\.check\(\s*["'](\d\d-\d+)["']""")


@dataclass(frozen=True)
class Step:
    """Run a cell, or try the answer to an exercise.

    ``place`` is what a teacher calls it, counting code cells from 1.
    """

    place: str
    source: str | None = None
    ask: str | None = None

    def encoded(self) -> dict[str, str]:
        """Return it for the plan's file."""
        what = {"source": self.source} if self.source is not None else {"ask": str(self.ask)}
        return {"place": self.place, **what}


def plan(cells: list[Any], answers: Mapping[str, str]) -> list[Step]:
    """Return the steps of a notebook.

    Parameters
    ----------
    cells
        Of the notebook, as nbformat has them.
    answers
        The exercises that it has: id -> the name that is defined, or of the file that is written.
    """
    code = [cell for cell in cells if cell["cell_type"] == "code" and cell["source"].strip()]
    names = [defined(cell["source"]) for cell in code]
    after = {name: _places(name, answer, code, names) for name, answer in answers.items()}
    steps = []
    for number, cell in enumerate(code):
        place = f"cell {number + 1}"
        here = [name for name, places in after.items() if number in places]
        tags = set(cell["metadata"].get("tags", []))
        needed = bool(names[number] & set(answers.values()))
        alone = cell["source"].startswith(PROGRAM) or bool(tags & SKIPPED)
        if needed or not (alone or only_asks(cell["source"])):
            steps.append(Step(place, source=cell["source"]))
        steps += [Step(f"the trial after {place}", ask=name) for name in here]
    steps += [Step("the trial at the end", ask=name) for name, at in after.items() if not at]
    return steps


def _places(name: str, answer: str, code: list[Any], names: list[set[str]]) -> set[int]:
    """Return after which cells an answer is tried: the last that checks it, the last that defines
    it, if there is one of them."""
    defines = [i for i, found in enumerate(names) if answer in found]
    checks = [i for i, cell in enumerate(code) if name in _CHECK.findall(cell["source"])]
    return {*checks[-1:], *defines[-1:]}


def defined(source: str) -> set[str]:
    """Return the names that a cell defines at its top, or of the file that it writes."""
    first = source.partition("\n")[0]
    if first.startswith(WRITES_FILE):
        return {first.split()[-1]}
    names: set[str] = set()
    for node in _statements(source):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {a.asname or a.name for a in node.names}
    return names


def only_asks(source: str) -> bool:
    """Return whether a cell does nothing but check, show a hint or a solution."""
    statements = list(_statements(source))
    return bool(statements) and all(map(_asks, statements))


def _asks(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    while isinstance(call, ast.Call | ast.Attribute):
        inside = call.func if isinstance(call, ast.Call) else call.value
        if isinstance(inside, ast.Name) and isinstance(call, ast.Attribute):
            return inside.id == "labkit" and call.attr in ASKS
        call = inside
    return False


def _statements(source: str) -> Iterator[ast.stmt]:
    """Yield the statements at the top of a cell, none if it is no Python."""
    lines = source.split("\n")
    if lines[0].startswith("%%"):
        lines[0] = ""
    # Lines of IPython: magics, and commands of the shell.
    lines = ["" if line.startswith(("%", "!", "?")) else line for line in lines]
    try:
        yield from ast.parse("\n".join(lines)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return


def ranks(sources: Iterable[str]) -> dict[str, int]:
    """Return on how many ranks a notebook checks each of its exercises: those of the newest lab.

    >>> ranks(["lab = labkit.start(4)", "lab = labkit.start(2)", 'labkit.check("05-4")'])
    {'05-4': 2}
    """
    found: dict[str, int] = {}
    started = 4
    for source in sources:
        started = next((int(n) for n in reversed(_START.findall(source))), started)
        found |= dict.fromkeys(CHECK.findall(source), started)
    return found
