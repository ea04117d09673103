"""What learners have done is read from their folders, whatever is in these."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from labkit import UsageError
from labkit.teaching import learners


def write(home: Path, exercises: dict[str, Any], notebook: str = "00_start_here.ipynb") -> None:
    home.mkdir(parents=True, exist_ok=True)
    content = {"version": 1, "notebook": notebook, "exercises": exercises}
    (home / "progress.json").write_text(json.dumps(content))


def problems(folder: Path) -> dict[str, str]:
    return {each.name: each.problem for each in learners.find(folder)}


def test_a_folder_per_learner_with_the_copy_somewhere_in_it(tmp_path: Path) -> None:
    last = "2026-11-27T12:00:00+00:00"
    write(tmp_path / "grace", {"00-1": {"passed": True, "tries": 2, "last": last}})
    write(tmp_path / "Ada" / "work", {"00-2": {"tries": 1}, "00-1": {"tries": 3, "last": last}})
    write(tmp_path / "deep" / "a" / "b" / "c", {"00-1": {"passed": True}})
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "notes.txt").write_text("no learner")
    ada, deep, grace = learners.find(tmp_path)
    assert (ada.name, ada.passed, ada.notebook) == ("Ada", 0, "00")
    assert (deep.exercises, deep.problem) == ({}, "There is no progress.json yet.")
    assert grace.passed == 1
    assert ada.latest is not None
    assert ada.latest[0] == "00-1"


def test_of_several_copies_the_newest_counts(tmp_path: Path) -> None:
    for name, when, passed in (("old", 1000, False), ("new", 2000, True)):
        write(tmp_path / "ada" / name, {"00-1": {"passed": passed}})
        os.utime(tmp_path / "ada" / name / "progress.json", (when, when))
    assert learners.find(tmp_path)[0].passed == 1


@pytest.mark.parametrize(
    "content",
    ["", '{"version": 1, "exer', "[1]", "\xff", '{"version": 1, "exercises": {"00-1": [1]}}',
     '{"version": 1, "exercises": {"00-1": {"tries": -1}}}', "[" * 100_000, "9" * 2_000_000],
    ids=["empty", "half", "foreign", "binary", "shape", "negative", "nested", "huge"],
)  # fmt: skip
def test_a_broken_file_costs_only_its_learner(tmp_path: Path, content: str) -> None:
    write(tmp_path / "ada", {"00-1": {"passed": True}})
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "progress.json").write_bytes(content.encode("latin-1"))
    ada, bob = learners.find(tmp_path)
    assert ada.passed == 1
    assert bob.exercises == {}
    assert bob.problem == "progress.json is damaged, or labkit has not written it."


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "outside", {"00-1": {"passed": True}})
    homes = tmp_path / "homes"
    for name in ("file", "pipe", "inner"):
        (homes / name).mkdir(parents=True)
    (homes / "file" / "progress.json").symlink_to(tmp_path / "outside" / "progress.json")
    (homes / "home").symlink_to(tmp_path / "outside")
    (homes / "inner" / "work").symlink_to(tmp_path / "outside")
    os.mkfifo(homes / "pipe" / "progress.json")
    assert problems(homes) == {
        "file": "progress.json is a symbolic link, which is not followed.",
        "home": "The folder is a symbolic link, which is not followed.",
        "inner": "There is no progress.json yet.",
        "pipe": "progress.json cannot be read (it is no file).",
    }


def test_numbers_and_names_that_cannot_be_are_bounded(tmp_path: Path) -> None:
    absurd = {"tries": 2**60, "minutes": 1e308, "last": "9999-12-31T23:59:59+00:00"}
    write(
        tmp_path / "a\n\x1b[31mb",
        {"00-1": absurd, "99-9": {"passed": True}, "<b>": {"passed": True}, "my1": {}},
        "../../x",
    )
    write(tmp_path / "a\n\x1b[32mb", {})
    write(tmp_path / ("x" * 200), {})
    found = {each.name: each for each in learners.find(tmp_path)}
    assert set(found) == {"a��[31mb", "a��[32mb", "x" * 39 + "…"}
    odd = found["a��[31mb"]
    assert set(odd.exercises) == {"00-1", "my1"}
    entry = odd.exercises["00-1"]
    assert (entry.tries, entry.minutes, entry.last) == (9999, 9999, None)
    assert odd.notebook == ""


def test_names_that_are_shown_alike_differ(tmp_path: Path) -> None:
    for name in ("a\x01", "a\x02", "a\x03"):
        write(tmp_path / name, {})
    assert sorted(problems(tmp_path)) == ["a�", "a� (2)", "a� (3)"]


def test_what_is_no_class(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        learners.find(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="has no folders"):
        learners.find(tmp_path)
    write(tmp_path, {})
    with pytest.raises(UsageError, match="the copy of one learner"):
        learners.find(tmp_path)
