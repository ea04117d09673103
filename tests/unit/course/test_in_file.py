"""An answer that is a file: its parts, in order, and what a learner's own file is worth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labkit.base.errors import UsageError
from labkit.course import in_file, material
from labkit.course.exercise import Exercise, Failed, Mistake
from labkit.course.judge import Verdict, judge
from labkit.course.report import report
from labkit.course.script_start import StartFailed

EXPECTED = {"first": {"steps": 3, "weights": 1.0}, "second": {"steps": 5, "weights": 2.0}}
Found = dict[str, dict[str, Any]]


def exercise(found: Found, failed: Failed | None = None, **changes: Any) -> Exercise:
    """Return an exercise whose file gives this, part by part, and fails after that."""

    def trial(path: Path, seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
        assert (path, seconds) == (Path("mine.py"), 7)
        yield from found.items()
        if failed is not None:
            raise StartFailed(failed, ["a note"], "who waits")
        assert set(found) == set(EXPECTED), "a part that differs ends the trial"

    values: dict[str, Any] = {
        "id": "99-1",
        "title": "Train",
        "answer": "mine.py",
        "where": "file",
        "start": "scripts/single.py",
        "trial": trial,
        "expected": lambda: EXPECTED,
        "hints": ("a", "b", "c"),
        "seconds": 7,
    }
    return Exercise(**{**values, **changes})


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the learner's file."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text("x = 1\n")
    return path


def told(asked: Exercise) -> tuple[Verdict, list[str]]:
    result = in_file.try_file(asked)
    verdict = judge(result)
    text = report(result, verdict).replace("\x1b[32m", "").replace("\x1b[31m", "")
    return verdict, text.replace("\x1b[0m", "").replace("\x1b[1m", "").splitlines()


def test_all_parts_as_expected() -> None:
    verdict, lines = told(exercise(EXPECTED))
    assert verdict.passed
    assert lines[:3] == ["99-1  Train", "✓ first", "✓ second"]


def test_the_first_part_that_differs_ends_it() -> None:
    verdict, lines = told(exercise({"first": {"steps": 4, "weights": 1.0}, "third": {}}))
    assert verdict.name == "different"
    assert "in steps" in verdict.sentence
    assert lines[1] == "✗ first"
    assert lines[2].split() == ["yours", "expected"]
    assert lines[3].split() == ["steps", "4", "3", "✗"]


def test_a_mistake_sees_the_part_that_differs() -> None:
    known = Mistake("It is known.", when=lambda y, e, n: y["steps"] == 2 * e["steps"])
    found = {"first": EXPECTED["first"], "second": {"steps": 10, "weights": 0.0}}
    assert told(exercise(found, mistakes=[known]))[0].mistake == known.sentence
    found["second"] = {"steps": 6, "weights": 0.0}
    assert told(exercise(found, mistakes=[known]))[0].name == "different"


def test_a_start_that_fails() -> None:
    failed = Failed("ValueError", "bad rank", ("main()",))
    verdict, lines = told(exercise({"first": EXPECTED["first"]}, failed))
    assert verdict.sentence == "It raises ValueError: bad rank, in the line `main()`."
    assert lines[1:4] == ["✓ first", "✗ second", "a note"]
    stuck = Mistake("They wait.", stuck="who waits")
    waits = exercise({}, Failed("Deadlock", "waited in vain"), mistakes=[stuck])
    assert told(waits)[0].mistake == stuck.sentence


@pytest.mark.parametrize("text", ["", "...", "# only\n", '"""Mine."""\n'])
def test_a_file_without_code_is_unwritten(mine: Path, text: str) -> None:
    mine.write_text(text)
    assert told(exercise(EXPECTED))[0].name == "nothing"


def test_a_script_for_slurm_is_no_python(mine: Path) -> None:
    asked = exercise(EXPECTED, answer="mine.sbatch", start="scripts/one_node.sbatch")
    path = mine.with_suffix(".sbatch")
    text = material.file("scripts/one_node.sbatch").read_text()
    path.write_text(f"# more\n\n{text}  # and more\n".replace("  # and more", "# and more"))
    assert in_file.try_file(asked).found == "unwritten"
    # Those comments are for sbatch.
    path.write_text(text.replace("#SBATCH --nodes=1", "#SBATCH --nodes=2"))
    with pytest.raises(AssertionError):  # the trial of these tests, which is begun with mine.py
        in_file.try_file(asked)


def test_the_file_that_it_begins_as_is_unwritten(mine: Path) -> None:
    start = material.file("scripts/single.py").read_text()
    mine.write_text(f"# Your turn.\n{start.replace('#', '# not')}")
    verdict, _ = told(exercise(EXPECTED))
    assert verdict.sentence.startswith("`mine.py` does what scripts/single.py does: change it")


def test_a_file_that_is_no_python(mine: Path) -> None:
    mine.write_text("x = 1\nif x\n    pass\n")
    verdict, lines = told(exercise(EXPECTED))
    assert verdict.name == "SyntaxError"
    assert lines[1] == "mine.py, line 2: SyntaxError: expected ':'"


def test_there_is_no_file(mine: Path) -> None:
    mine.unlink()
    with pytest.raises(UsageError, match=r"There is no mine\.py beside this notebook yet"):
        in_file.try_file(exercise(EXPECTED))
    mine.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"mine\.py cannot be read \(it is no text\)"):
        in_file.try_file(exercise(EXPECTED))


def test_a_solution_is_written_and_the_learners_file_kept(mine: Path) -> None:
    asked = exercise(EXPECTED)
    assert in_file.keep(asked, "y = 2\n") == "mine.yours.py"
    assert mine.read_text() == "y = 2\n"
    assert mine.with_name("mine.yours.py").read_text() == "x = 1\n"
    assert in_file.keep(asked, "y = 2\n") == ""
    mine.unlink()
    assert in_file.keep(asked, "y = 2\n") == ""


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"start": ""}, "a file, and nothing else, has start="),
        ({"where": "notebook"}, "a file, and nothing else, has start="),
        ({"answer": "../x.py"}, "the answer is a name"),
        ({"forbids": ("send",)}, "calls are counted on ranks only"),
    ],
)
def test_an_exercise_that_is_not_well_described(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        exercise(EXPECTED, **changes)
