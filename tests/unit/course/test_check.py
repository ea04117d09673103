"""What a check returns and shows, by exercises that need no rank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit.course import catalogue, check
from labkit.course.exercise import Exercise, Mistake
from labkit.notebook import shell as shell_module
from labkit.notebook.show import plain

IDS = ["12-1", "12-2", "12-3", "12-4"]


def exercise(name: str) -> Exercise:
    """Return an exercise that asks for 1; an answer of 2 shows a mistake."""
    return Exercise(
        id=name,
        title="Return one",
        answer=f"one_{name[-1]}",
        trial=lambda answer, here: answer(),
        expected=lambda: 1,
        hints=("a", "b", "c"),
        where="notebook",
        mistakes=(Mistake("It is two.", when=lambda yours, *_: yours == 2, hint="Halve it."),),
    )


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """A notebook in which nothing has been checked."""
    shell = InteractiveShell()
    shell.history_manager.enabled = False
    shell.user_ns["labkit"] = labkit
    monkeypatch.setattr(shell_module, "current", lambda: shell)
    monkeypatch.setattr(catalogue, "find", exercise)
    monkeypatch.setattr(check, "_last", None)
    for of_exercises in (check._given, check._said, check._own):
        of_exercises.clear()
    return shell


def test_a_verdict_says_what_was_found(notebook: InteractiveShell) -> None:
    notebook.run_cell("def one_1():\n    return 2")
    verdict = labkit.check("12-1")
    assert not verdict
    assert (verdict.exercise, verdict.passed) == ("12-1", False)
    assert verdict.mistake == verdict.sentence == "It is two."
    assert repr(verdict) == "Verdict(exercise='12-1', passed=False, sentence='It is two.')"
    notebook.run_cell("def one_1():\n    return 3")
    verdict = labkit.check("12-1")
    assert (bool(verdict), verdict.mistake, verdict.name) == (False, None, "different")
    notebook.run_cell("def one_1():\n    return 1")
    verdict = labkit.check("12-1")
    assert verdict
    assert (verdict.sentence, verdict.mistake) == ("", None)
    assert repr(verdict) == "Verdict(exercise='12-1', passed=True)"


@pytest.mark.parametrize("call", ['labkit.check("12-1")', 'labkit.check.all("12")'])
def test_it_is_shown_once_in_its_cell_and_the_same_in_a_later_one(
    notebook: InteractiveShell, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    notebook.run_cell("def one_1():\n    return 2", store_history=True)
    notebook.run_cell(f"value = {call}", store_history=True)
    printed = capsys.readouterr().out
    assert "12-1" in printed
    format_data = notebook.display_formatter.format
    for cell, shown in ((f"value = {call}", ""), ("1 + 1", printed)):
        # What the cell's last line would show is asked for within the cell.
        notebook.user_ns["ask"] = lambda: format_data(notebook.user_ns["value"])
        capsys.readouterr()
        result = notebook.run_cell(f"{cell}\nprint('|', end='')\nasked = ask()", store_history=True)
        result.raise_error()
        assert notebook.user_ns["asked"] == ({}, {})  # so no output of its own
        assert capsys.readouterr().out.partition("|")[2] == shown


def test_all_exercises_of_a_notebook(
    notebook: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.run_cell("def one_1():\n    return 1\ndef one_2():\n    return 2\ndef one_3(): ...")
    verdicts = labkit.check.all("12")
    assert plain(capsys.readouterr().out).splitlines() == [
        "✓ 12-1  Return one",
        "✗ 12-2  Return one  not yet",
        "✗ 12-3  Return one  not yet",
        "  12-4  Return one  not tried",
        '1 of 4 passed; labkit.check("12-2") says more.',
    ]
    assert [name for name, verdict in verdicts.items() if verdict] == ["12-1"]
    assert verdicts["12-2"].mistake == "It is two."
    assert verdicts["12-4"].sentence.startswith("This notebook has no `one_4` yet: run the cell of")
    labkit.hint()  # for the first that is open
    assert capsys.readouterr().out == "Hint for what the check of 12-2 found: Halve it.\n"


def test_which_notebook_is_meant(
    notebook: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    with pytest.raises(labkit.UsageError, match=r"give its number, as in labkit\.check\.all"):
        labkit.check.all()
    with pytest.raises(labkit.UsageError, match=r"There is no notebook '9' with exercises; .*09"):
        labkit.check.all("9")
    notebook.run_cell("def one_2():\n    return 1")
    labkit.check("12-2")
    assert list(labkit.check.all()) == IDS  # that of what was checked
    file = tmp_path / "exam.ipynb"
    cells = [{"cell_type": "code", "source": [f'labkit.check("{n}")']} for n in ("12-2", "03-1")]
    file.write_text(json.dumps({"cells": cells}))
    monkeypatch.setenv("JPY_SESSION_NAME", str(file))
    assert list(labkit.check.all()) == ["12-2", "03-1"]  # the front end says which
    notebook.user_ns["__vsc_ipynb_file__"] = str(tmp_path / "gone.ipynb")
    assert list(labkit.check.all()) == IDS  # a file that is not there says nothing
