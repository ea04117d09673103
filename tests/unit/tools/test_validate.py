"""Which notebooks `labkit test` takes, and what it has pytest do (`test_cli` runs it)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import labkit
from labkit.course import material
from labkit.tools import validate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.ipynb",
        "a.ipynb",
        "a.executed.ipynb",
        "deep/c.ipynb",
        ".ipynb_checkpoints/a-checkpoint.ipynb",
        "test_code.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return tmp_path


def test_a_folder_stands_for_its_notebooks(folder: Path) -> None:
    names = ["a.ipynb", "b.ipynb", "deep/c.ipynb"]
    assert validate.find([folder]) == [folder / name for name in names]


def test_a_notebook_named_twice_runs_once(folder: Path) -> None:
    found = validate.find([folder / "b.ipynb", folder, folder / "a.executed.ipynb"])
    assert [path.name for path in found] == ["b.ipynb", "a.ipynb", "c.ipynb", "a.executed.ipynb"]


def test_nothing_stands_for_the_course() -> None:
    assert validate.find([]) == material.notebooks()


def test_other_things_are_refused(folder: Path) -> None:
    for path in (folder / "test_code.py", folder / "missing.ipynb"):
        with pytest.raises(labkit.LabError, match="is neither a notebook"):
            validate.find([folder, path])
    (folder / "empty").mkdir()
    with pytest.raises(labkit.LabError, match="There is no notebook in"):
        validate.find([folder / "empty"])


def test_pytest_is_strict_and_reads_no_configuration(folder: Path) -> None:
    argv = validate.command([folder / "a.ipynb", folder / "deep" / "c.ipynb"], timeout=2.5)
    assert {
        "--nbval",
        "labkit.tools.nbval_plugin",
        "--nbval-cell-timeout=2.5",
        f"--config-file={os.devnull}",
        "--noconftest",
        f"--rootdir={folder}",
    } <= set(argv)
