"""The answers of ``tests/data/witnesses``: each mistake has one, and all are real code."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from labkit.course.exercise import Exercise
from tests.support import answers, witnesses
from tests.support.answers import EXERCISES
from tests.support.witnesses import FOLDER, RIGHT, Witness, parse

#: What a ``%%px`` cell finds on its rank without an import.
ON_RANKS = ("rank", "world_size", "device", "torch", "dist")
#: Syntax, comparisons that cannot be meant, names that are not defined.
RULES = "E9,F63,F7,F82"


def unseen(exercise: Exercise) -> list[str]:
    """Return the sentences of mistakes that no witness shows."""
    said = tuple(witness.says for witness in witnesses.wrong(exercise).values())
    return [m.sentence for m in exercise.mistakes if not m.sentence.startswith(said)]


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_has_what_it_must_have(name: str) -> None:
    exercise = EXERCISES[name]
    solution = answers.solution(exercise)
    assert name in answers.definitions(name[:2])
    assert witnesses.right(exercise)
    assert len(witnesses.wrong(exercise)) >= 3
    assert unseen(exercise) == []
    for witness in witnesses.of(exercise).values():
        assert answers.written(exercise, witness) != solution, witness.name
        named = [m for m in exercise.mistakes if m.sentence.startswith(witness.says)]
        assert len({m.sentence for m in named}) <= 1, f"{witness.says!r} begins two sentences"


def test_each_file_belongs_to_an_exercise() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.md" for name in EXERCISES}


def test_the_answers_are_code_that_ruff_reads(tmp_path: Path) -> None:
    for exercise in EXERCISES.values():
        if exercise.answer.endswith(".sbatch"):
            continue  # a shell's
        folder = tmp_path / exercise.where
        folder.mkdir(exist_ok=True)
        for name, witness in witnesses.of(exercise).items():
            cells = (answers.setup(exercise), answers.written(exercise, witness), "")
            path = folder / f"{exercise.id} {name.replace('/', ' ')}.py"
            path.write_text("\n\n\n".join(cells))
    for where, names in (("ranks", ON_RANKS), ("notebook", ()), ("file", ())):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", RULES,
             "--config", f"builtins = {list(names)}", "--output-format", "concise", "."],
            cwd=tmp_path / where, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


# -- how a file is read ---------------------------------------------------------------------------

SOLUTION = textwrap.dedent("""
    import math


    def scale(x):
        for row in x:
            row /= 2
            dist.all_reduce(row)
        return x
""").strip("\n")


def written(form: str, text: str) -> str:
    return Witness("a", "b", form, text).written(SOLUTION, "scale")


def test_a_change_keeps_takes_away_and_adds_lines() -> None:
    hunks = (
        "-import math\n+import cmath\n@@\n     for row in x:\n-        row /= 2\n@@\n-    return x"
    )
    assert written("diff", hunks) == "\n".join(
        ["import cmath", *SOLUTION.split("\n")[1:5], "        dist.all_reduce(row)"]
    )


def test_a_function_is_defined_anew_and_the_rest_stays() -> None:
    anew = "def scale(x):\n    return x / 2"
    assert written("python", anew) == f"import math\n\n\n{anew}"


def test_a_file_is_another_file() -> None:
    assert Witness("a", "b", "bash", "exit 1").written("exit 0", "job.sbatch") == "exit 1"


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ("-    return y", "has this 0 times, not once"),
        ("\n+    y = 1", "has this 2 times, not once"),
        ("+    y = 1", "times, not once"),
    ],
)
def test_a_change_that_fits_nowhere_or_twice_is_refused(diff: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        written("diff", diff)
    with pytest.raises(ValueError, match="does not define other"):
        Witness("a", "b", "python", "").written(SOLUTION, "other")


BEGIN = "# 99-1 Add up\n\n## It is."


def test_a_file_holds_answers_below_headings() -> None:
    first, second = "### a\n```python\nx\n\ny\n```\n", "### b\n```diff\n-x\n```\n"
    assert list(parse(f"{BEGIN}\n\n{first}\n## {RIGHT}\n\n{second}").values()) == [
        Witness("a", "It is.", "python", "x\n\ny"),
        Witness("b", RIGHT, "diff", "-x"),
    ]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("### b\n```diff\n-x\n```\n" * 2, "two answers have the name 'b'"),
        ("### b\n-x\n", "below 'It is.' this is no answer:\n### b"),
    ],
)
def test_a_file_that_is_none_is_refused(answers: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(f"{BEGIN}\n\n{answers}")
