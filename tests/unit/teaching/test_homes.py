"""What is graded: notebooks, a copy of the course, homes."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.base.errors import UsageError
from labkit.teaching import homes

ONE, TWO = "00_start_here.ipynb", "01_point_to_point.ipynb"


def put(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def found(path: Path, *only: str) -> dict[str, list[str]]:
    return {home.name: sorted(home.notebooks) for home in homes.find([path], only)}


def test_a_copy_of_the_course_is_one_home(tmp_path: Path) -> None:
    put(tmp_path / "ada" / "notebooks" / ONE, tmp_path / "ada" / "notebooks" / TWO)
    assert found(tmp_path / "ada") == {"ada": [ONE, TWO]}
    assert found(tmp_path / "ada" / "notebooks") == {"ada": [ONE, TWO]}
    assert found(tmp_path / "ada" / "notebooks" / ONE) == {"ada": [ONE]}
    assert found(tmp_path / "ada", "01") == {"ada": [TWO]}


def test_homes_keep_their_copies_where_they_like(tmp_path: Path) -> None:
    put(tmp_path / "ada" / "notebooks" / ONE, tmp_path / "bob" / "work" / "notebooks" / TWO)
    put(tmp_path / "cy" / TWO, tmp_path / ".cache" / "notebooks" / ONE)
    (tmp_path / "dee").mkdir()
    (tmp_path / "eve").symlink_to(tmp_path / "ada")  # hands in nothing of her own
    assert found(tmp_path) == {"ada": [ONE], "bob": [TWO], "cy": [TWO], "dee": [], "eve": []}


def test_copies_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    ada, bob = (tmp_path / name / "work" / "notebooks" for name in ("ada", "bob"))
    put(ada / ONE, ada / TWO, bob / ONE)
    graded = homes.find([ada / ONE, ada.parent, tmp_path / "bob"])
    assert {home.name: home.notebooks for home in graded} == {
        "ada/work": {ONE: ada / ONE, TWO: ada / TWO},
        "bob/work": {ONE: bob / ONE},
    }


def test_what_nobody_hands_in_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    put(folder / ONE, folder / "00_start_here.executed.ipynb", folder / "00_start_here.new.ipynb")
    put(folder / "notes.ipynb")
    (folder / TWO).symlink_to(folder / ONE)  # it may lead to somebody else's
    assert list(found(tmp_path).values()) == [[ONE]]


def test_anything_else_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "mine.ipynb")
    for path in (tmp_path / "nothing", tmp_path / "mine.ipynb", tmp_path):
        with pytest.raises(UsageError):
            homes.find([path])
    put(tmp_path / "notebooks" / ONE)
    for only in ("1", "00-1", "19"):
        with pytest.raises(UsageError):
            homes.find([tmp_path], [only])
