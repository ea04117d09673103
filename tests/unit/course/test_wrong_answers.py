"""The answers that stand in the exercises' files: each exercise has some, and all are real code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import answers
from tests.support.answers import EXERCISES

#: What a ``%%px`` cell finds on its rank without an import.
ON_RANKS = ("rank", "world_size", "device", "torch", "dist")
#: Syntax, comparisons that cannot be meant, names that are not defined.
RULES = "E9,F63,F7,F82"


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_has_what_it_must_have(name: str) -> None:
    exercise = EXERCISES[name]
    assert name in answers.definitions(name[:2])
    assert len(exercise.wrong_answers()) >= 3
    solution = answers.solution(exercise)
    for wrong, (text, said) in {
        wrong: (answers.written(exercise, found.answer), found.says)
        for wrong, found in exercise.wrong_answers().items()
    }.items():
        assert text != solution, wrong
        assert said.strip()


def test_the_answers_are_code_that_ruff_reads(tmp_path: Path) -> None:
    for exercise in EXERCISES.values():
        if exercise.answer.endswith(".sbatch"):
            continue  # a shell's
        found = {wrong: w.answer for wrong, w in exercise.wrong_answers().items()}
        for name, answer in {**found, "another": exercise.another}.items():
            folder = tmp_path / exercise.where
            folder.mkdir(exist_ok=True)
            cells = (answers.setup(exercise), answers.written(exercise, answer), "")
            path = folder / f"{exercise.id} {name.replace('/', ' ')}.py"
            path.write_text("\n\n\n".join(cells))
    for where, names in (("ranks", ON_RANKS), ("notebook", ()), ("file", ())):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", RULES,
             "--config", f"builtins = {list(names)}", "--output-format", "concise", "."],
            cwd=tmp_path / where, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
