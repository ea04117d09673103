"""A teacher's own exercises are found beside the notebook and in cells; none hides the course's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from IPython.core.completer import CompletionContext

import labkit
from labkit import UsageError
from labkit.course import catalogue, check, own_exercises
from labkit.course.in_notebook import own_lines

TEXT = '''
from labkit.course.exercise import Exercise
from ._shared import FIVE


def trial(answer, here):
    return answer() + 0 * FIVE


EXERCISE = Exercise(
    id="my1",
    title="Five",
    answer="five",
    trial=trial,
    expected=lambda: FIVE,
    where="notebook",
    hints=["Four and one."],
    solution="""
        def five():
            return 5
    """,
)
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of exercises beside a notebook, with one in it, and forget others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own_exercises, "_of_cells", {})
    monkeypatch.setattr(check, "_last", None)
    for of_exercises in (check._given, check._said, check._own):
        of_exercises.clear()
    found = tmp_path / "exercises"
    found.mkdir()
    (found / "my1.py").write_text(TEXT)
    (found / "_shared.py").write_text("FIVE = 5\n")
    return found


def answer_with(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr("labkit.course.in_notebook.names_of_notebook", lambda: {"five": answer})


def verdict(name: str) -> str:
    return check.examine(catalogue.find(name))[1].name


def test_a_file_is_found_with_hints_and_solution(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_with(monkeypatch, lambda: 4)
    assert verdict("my1") == "different"
    answer_with(monkeypatch, lambda: 2 + 3)
    assert verdict("my1") == "passed"
    for _ in range(2):
        labkit.hint("my1")
    labkit.solution("my1")
    assert capsys.readouterr().out == (
        "Hint 1 of 1 for my1: Four and one.\n"
        'There are no more hints for my1; labkit.solution("my1") shows a solution, and\n'
        'labkit.solution("my1", define=True) defines it.\n'
        "def five():\n    return 5\n"
    )


def test_an_edited_file_is_read_anew_even_with_the_same_size_and_second(folder: Path) -> None:
    assert catalogue.find("my1").expected() == 5
    before = (folder / "_shared.py").stat()
    (folder / "_shared.py").write_text("FIVE = 6\n")
    os.utime(folder / "_shared.py", ns=(before.st_atime_ns, before.st_mtime_ns + 1000))
    assert catalogue.find("my1").expected() == 6
    assert not list(folder.rglob("*.pyc"))


def test_what_is_not_edited_is_not_loaded_again() -> None:
    assert catalogue.find("my1") is catalogue.find("my1")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("my1", "answer() + 0", "answer( + 0", "exercises/my1.py, line 7: SyntaxError: "),
        ("my1", "FIVE\n", "SIX\n", "exercises/my1.py, line 3: ImportError: "),
        ("my1", '["Four and one."]', '["a", "b", "c", "d"]', "line 10: ValueError: my1: there are"),
        ("my1", "EXERCISE =", "raise SystemExit\nEX =", "exercises/my1.py, line 10: SystemExit"),
        ("my1", "EXERCISE =", "EX =", "exercises/my1.py defines no EXERCISE = Exercise"),
        ("my1", 'id="my1"', 'id="my2"', "exercises/my1.py has the exercise 'my2': give it the"),
        ("_shared", "FIVE", "FI VE", "exercises/_shared.py, line 1: SyntaxError: "),
    ],
)
def test_a_broken_file_is_one_sentence(
    folder: Path, file: str, old: str, new: str, said: str
) -> None:
    path = folder / f"{file}.py"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UsageError) as caught:
        catalogue.find("my1")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ids_do_not_collide_with_the_course(folder: Path) -> None:
    (folder / "03-2.py").write_text(TEXT.replace("my1", "03-2"))
    with pytest.raises(UsageError, match="belongs to the course"):
        catalogue.find("03-2")
    with pytest.raises(UsageError, match="begins with a letter"):
        labkit.exercise("03-2", title="T", answer="five", expected=lambda: 5)
    with pytest.raises(UsageError, match=r"your own are my1, and there is no file exercises/my2\."):
        catalogue.find("my2")


def define(name: str, **description: Any) -> Any:
    """Define an exercise as a cell does."""

    @labkit.exercise(
        name, title="T", answer="five", where="notebook", expected=lambda: 5, **description
    )
    def trial(answer: Any, here: Any) -> int:
        return int(answer())

    return trial


def test_a_cell_defines_one(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = define("in-cell")
    answer_with(monkeypatch, lambda: 2 + 3)
    assert verdict("in-cell") == "passed"
    # What the trial cannot use is the answer's result, and no error in the learner's lines.
    answer_with(monkeypatch, lambda: [2 + 3])
    assert "It returns a list of 1 number" in check.examine(catalogue.find("in-cell"))[1].sentence
    with pytest.raises(TypeError) as caught:
        trial(list, None)
    assert "return int(answer())" not in own_lines(caught.value)
    with pytest.raises(UsageError, match=r"cannot be defined: labkit\.exercise got an unexpected"):
        define("other", titel="T")


def test_two_of_one_id_are_refused() -> None:
    define("my1")
    with pytest.raises(UsageError, match=r"two exercises 'my1', one in exercises/my1\.py and"):
        catalogue.find("my1")


def test_tab_completes_them() -> None:
    define("mine-too")
    line = 'labkit.check("m'
    context = CompletionContext(
        token="m", full_text=line, cursor_position=len(line), cursor_line=0, limit=None
    )
    found = catalogue.complete(context)
    assert [c.text for c in found["completions"]] == ["mine-too", "my1"]


def test_trial_is_sent_as_code() -> None:
    """A rank cannot import the file: what is sent does not ask it to."""
    sent = cloudpickle.dumps(catalogue.find("my1").trial)
    assert b"answer" in sent  # its code, with the names of its parameters
