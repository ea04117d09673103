"""Where a learner's progress is noted, where not, and that it never disturbs a check."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

import labkit
from labkit import DataError
from labkit.course import catalogue, check, delivery, learner, material, progress
from labkit.course.progress import Entry
from labkit.notebook import live
from labkit.notebook import shell as shell_module
from labkit.notebook.show import plain
from labkit.tools import jupyterlab


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A learner's copy, with a notebook of it open, at which somebody looks."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / delivery.RECORD).write_text("{}")
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    shell = InteractiveShell()
    monkeypatch.setattr(shell_module, "current", lambda: shell)
    monkeypatch.setattr(live, "is_watched", lambda: True)
    monkeypatch.setattr(learner, "_is_told", False)
    learner._greeted.clear()
    return tmp_path


def solve(work: Path, *exercises: str) -> None:
    for name in exercises:
        learner.note(name, lambda entry, now: entry.check(True, None, now))


def test_a_copy_is_known_wherever_its_notebook_has_gone_since(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert learner.own_copy() == work
    solve(work, "03-1")
    assert progress.read(work).notebook == "03_ring_allreduce.ipynb"
    mine = work / "notebooks" / "03 again.ipynb"
    mine.touch()
    monkeypatch.setenv("JPY_SESSION_NAME", str(mine))
    solve(work, "03-1")
    assert progress.read(work).notebook == "03 again.ipynb"  # which is open
    elsewhere = work.parent / "exam.ipynb"
    elsewhere.touch()
    monkeypatch.setenv("JPY_SESSION_NAME", str(elsewhere))
    assert learner.own_copy() is None


def test_nothing_is_noted_where_nobody_looks_on(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # pytest is no notebook
    monkeypatch.chdir(work / "notebooks")
    assert learner.own_copy() == work
    assert learner.note("00-1", Entry.hint) is None
    assert not (work / progress.FILE).exists()


def test_nothing_is_noted_in_the_courses_own_notebooks(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", str(material.notebooks("00")[0]))
    before = list(material.root().rglob(progress.FILE))
    assert learner.own_copy() is None
    assert learner.note("00-1", Entry.hint) is None
    assert list(material.root().rglob(progress.FILE)) == before


def test_what_cannot_be_noted_is_said_once(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / progress.FILE).write_text("{")
    for _ in range(2):
        assert learner.note("00-1", Entry.hint) is None
    said = capsys.readouterr().out
    assert " ".join(said.split()) == (
        f"labkit could not note your progress: {work / progress.FILE} is damaged, or labkit has "
        "not written it. If you rename it, labkit begins a new one."
    )
    with pytest.raises(DataError, match="is damaged"):
        labkit.progress()
    (work / progress.FILE).unlink()
    solve(work, "00-1")  # it goes on by itself
    assert labkit.progress().progress.exercises["00-1"].passed


def test_the_first_check_of_a_notebook_says_how_far_one_is(work: Path) -> None:
    solve(work, "00-1", "03-2")
    kept = progress.read(work)
    assert learner.standing(kept, "00-2") == (
        "Passed so far: 1 of 4 in notebook 00, 2 of 85 in the course; see labkit.progress()."
    )
    assert learner.standing(kept, "00-3") == ""
    assert learner.standing(kept, "03-1").startswith("Passed so far: 1 of 5 in notebook 03,")
    assert learner.standing(kept, "my-1") == ""  # a teacher's own
    every = [name for number in catalogue.numbers() for name in catalogue.ids(number)]
    kept.exercises = {name: Entry(passed=True) for name in every}
    assert learner.standing(kept, "00-3").startswith("You have solved all 85 exercises;")
    assert learner.standing(kept, "00-3") == ""


def test_a_table_of_what_has_been_done(work: Path) -> None:
    assert labkit.progress().next == ("00_start_here.ipynb", "00-1")
    solve(work, "00-1", "00-2", "my-1")
    learner.note("00-1", Entry.hint)  # it has passed: this one does not count
    learner.note("00-3", Entry.hint)
    learner.note("00-3", Entry.see_solution)
    learner.note("00-3", lambda entry, now: entry.check(False, "It is two.", now))
    table = labkit.progress()
    lines = repr(table).splitlines()
    assert lines[0].split() == ["notebook", "exercises", "passed", "tries", "hints", "minutes"]
    assert lines[1].split() == ["00_start_here", *"✓✓✗○", "2", "of", "4", "3", "1", "0"]
    assert lines[2].split()[0] == "01_point_to_point"
    assert lines[2].endswith("0 of 4")
    assert any(line.startswith("other exercises") for line in lines)  # a teacher's own
    assert lines[-2:] == [
        "3 of 86 exercises have passed; tries: 4, hints: 1, solutions seen: 1, minutes: 0.",
        "Go on with exercise 00-3 in 00_start_here.ipynb.",
    ]
    html = table._repr_mimebundle_()["text/html"]
    assert 'aria-label="00-1: passed, tries: 1"' in html
    assert 'aria-label="00-3: not yet passed, tries: 1, hints: 1, solution seen"' in html
    assert 'href="03_ring_allreduce.ipynb"' in html
    assert "<script" not in html


def test_one_goes_on_where_one_stopped(work: Path) -> None:
    solve(work, "03-4")
    assert labkit.progress().next == ("03_ring_allreduce.ipynb", "03-1")
    solve(work, "03-1", "03-2", "03-3", "03-5")
    assert labkit.progress().next == ("04_process_groups.ipynb", "04-1")
    solve(work, *catalogue.ids("26"))
    assert labkit.progress().next == ("00_start_here.ipynb", "00-1")  # those that were left out
    every = [name for number in catalogue.numbers() for name in catalogue.ids(number)]
    solve(work, *every)
    assert labkit.progress().next is None


def test_a_check_notes_what_came_of_it(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = shell_module.current()
    assert notebook is not None
    check._given.clear()
    notebook.run_cell("def end_of_step(*asked): ...")
    labkit.check("06-1")  # a stub: not tried, and not noted
    assert not (work / progress.FILE).exists()
    assert "so far" not in capsys.readouterr().out
    notebook.run_cell("def end_of_step(*asked):\n    return 1 / 0")
    labkit.check("06-1")
    assert " ".join(plain(capsys.readouterr().out).split()).endswith(
        "labkit.hint() gives a hint. Passed so far: 0 of 3 in notebook 06, 0 of 85 in the course; "
        "see labkit.progress()."
    )
    labkit.hint()
    labkit.solution(define=True)
    assert labkit.check("06-1")
    entry = progress.read(work).exercises["06-1"]
    assert (entry.passed, entry.tries, entry.hints, entry.solution) == (True, 2, 1, True)


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("03 again.ipynb", "notebooks/03 again.ipynb"),
        ("", jupyterlab.FIRST_PAGE),
        ("gone.ipynb", jupyterlab.FIRST_PAGE),
        ("../outside.ipynb", jupyterlab.FIRST_PAGE),
    ],
)
def test_labkit_lab_opens_the_notebook_where_one_stopped(work: Path, name: str, page: str) -> None:
    for path in ("notebooks/03 again.ipynb", "outside.ipynb"):
        (work / path).touch()
    progress.change(work, "03-1", name, Entry.hint)
    assert jupyterlab.page(work) == page
    address = page.replace(" ", "%20")
    assert f"--LabApp.default_url=/lab/tree/{address}" in jupyterlab.command(work)
    (work / progress.FILE).write_text("{")
    assert jupyterlab.page(work) == jupyterlab.FIRST_PAGE
