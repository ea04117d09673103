"""A sandbox has the trials of the course, and not what they should give."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from labkit.course import exercises
from labkit.teaching.trial_source import without_answers

FOLDER = Path(exercises.__file__).parent
MODULES = sorted(FOLDER.glob("nb*/ex*.py"))


def test_only_what_the_trial_uses_is_kept() -> None:
    source = '''"""A doc."""
from __future__ import annotations
import math
from .shared import a, b
UNUSED = math.pi
LIMIT: int = 3
def helper(): return a(LIMIT)
def trial(answer, here): return helper()
def expected(n): return b(n)
EXERCISE = Exercise(trial=trial, expected=expected)
'''
    assert without_answers("ex1.py", source).split("\n") == [
        '"""A doc."""',
        "from __future__ import annotations",
        "from .shared import a",
        "LIMIT: int = 3",
        "",
        "def helper():",
        "    return a(LIMIT)",
        "",
        "def trial(answer, here):",
        "    return helper()",
        "",
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: f"{p.parent.name[2:]}-{p.stem[2:]}")
def test_no_exercise_of_the_course_shows_its_answer(path: Path) -> None:
    names = set()
    for node in ast.parse(without_answers(path.name, path.read_text())).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    # The trial of 09-4 is in a module that it shares with 19-4.
    assert "trial" in names or str(path).endswith("nb09/ex4.py")
    assert "EXERCISE" not in names
    if str(path).endswith("nb26/ex1.py"):  # its trial looks at the expected number itself
        return
    assert "expected" not in names
