"""Tests that have failed beside others are run once more, alone; and what a run says at its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import again
from tests.support.conda_versions import ROOT

PASSES_ALONE = """
import os

def test_one():
    assert os.environ.get("BESIDE") != "others"

def test_another():
    pass
"""
ALWAYS_FAILS = "def test_two():\n    assert not 'right'\n"


def python(folder: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a module in a folder, with our ``tests`` there to be found."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    env.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        [sys.executable, "-m", *args], cwd=folder, env=env, capture_output=True, text=True
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run_both(folder: Path, *files: tuple[str, str]) -> tuple[int, subprocess.CompletedProcess[str]]:
    """Run these files beside others, then what failed alone."""
    for name, text in files:
        (folder / name).write_text(text)
    first = python(folder, "pytest", "-q", BESIDE="others")
    return first.returncode, python(folder, "tests.support.again")


def test_what_passes_alone_passes_and_is_named(folder: Path) -> None:
    first, second = run_both(folder, ("test_a.py", PASSES_ALONE))
    assert (first, second.returncode) == (1, 0)
    assert "1 passed" in second.stdout
    assert second.stdout.endswith("passed alone:\n  test_a.py::test_one\n")


def test_what_fails_alone_too_fails(folder: Path) -> None:
    files = ("test_a.py", PASSES_ALONE), ("test_b.py", ALWAYS_FAILS)
    first, second = run_both(folder, *files)
    assert (first, second.returncode) == (1, 1)
    assert "1 failed, 1 passed" in second.stdout
    assert "passed alone" not in second.stdout


def test_a_notebook_runs_from_its_first_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 0)

    failed = ["a/b.ipynb::Cell 3", "a/test_c.py::test_1[x::y]", "a/b.ipynb::Cell 4"]
    monkeypatch.setattr(again, "failed", lambda: failed)
    monkeypatch.setattr(again.subprocess, "run", run)
    assert again.main() == 0
    assert ran[0][-2:] == ["a/b.ipynb", "a/test_c.py::test_1[x::y]"]


def test_many_do_not_fail_by_chance(folder: Path) -> None:
    first, second = run_both(
        folder, *[(f"test_{i}.py", PASSES_ALONE) for i in range(again.MOST + 1)]
    )
    assert (first, second.returncode, second.stdout) == (1, 1, "")


def test_nothing_to_run_is_no_success(folder: Path) -> None:
    assert python(folder, "tests.support.again").returncode == 1


def test_make_asks_for_it_after_failed_tests_only() -> None:
    """After a run that has not begun, say, what the last one noted would be of no meaning."""
    recipe = (ROOT / "Makefile").read_text().partition("\ntest: ")[2].partition("\n\n")[0]
    assert "[ $$status = 1 ] || exit $$status" in recipe
    assert recipe.index("exit $$status") < recipe.index("tests.support.again")


REFUSED = """
import logging

def test_one():
    logging.getLogger("labkit.launch.zygote_line").info("the zygote has refused: other code there")
"""


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one process", "xdist"])
def test_what_the_zygote_has_refused_is_said_at_the_end(folder: Path, workers: list[str]) -> None:
    (folder / "test_a.py").write_text(REFUSED)
    done = python(folder, "pytest", "-q", *workers, "-p", "tests.support.warm_start")
    assert done.returncode == 0
    assert "refused by the zygote: 1 × other code there" in done.stdout
