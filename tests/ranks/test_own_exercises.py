"""The exercises that docs/TEACHING.md shows work on ranks, as a teacher would copy them."""

from __future__ import annotations

from pathlib import Path

import pytest

import labkit
from labkit.course import catalogue, check, own_exercises
from tests.support.cells import run_cell
from tests.support.teaching_page import blocks

(FILE,), (CELL,) = blocks('"""Add up'), blocks("@labkit.exercise")


@pytest.fixture(autouse=True)
def _beside_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own_exercises, "_of_cells", {})
    (tmp_path / "exercises").mkdir()
    # A helper beside it, which no rank can import either.
    shared = "def numbers(here):\n    return [here.rank + 1.0]\n"
    (tmp_path / "exercises" / "_data.py").write_text(shared)
    text = FILE.replace("[here.rank + 1.0]", "numbers(here)")
    text = text.replace("import torch\n", "import torch\nfrom ._data import numbers\n", 1)
    (tmp_path / "exercises" / "total.py").write_text(text)


def found(name: str) -> str:
    return check.examine(catalogue.find(name))[1].name


def test_the_file(lab4: labkit.Lab, capsys: pytest.CaptureFixture[str]) -> None:
    run_cell(lab4, "def total(x): ...")
    assert found("total") == "nothing"
    run_cell(lab4, "def total(x):\n    return x")
    assert found("total").startswith("Each rank returns its own tensor")
    run_cell(lab4, "def total(x):\n    return dist.all_reduce(x)")
    assert found("total").startswith("dist.all_reduce returns None")
    run_cell(lab4, "def total(x):\n    if rank: dist.all_reduce(x)\n    return x")
    assert found("total") == "Deadlock"
    labkit.solution("total", define=True)
    assert "now the solution of exercise total" in capsys.readouterr().out
    assert found("total") == "passed"


def test_the_cell(lab4: labkit.Lab) -> None:
    exec(CELL, {"labkit": labkit, "__name__": "__main__"})
    run_cell(lab4, "def before():\n    return (rank - 1) % world_size")
    assert found("before") == "passed"


def test_a_trial_that_cannot_be_sent(lab4: labkit.Lab) -> None:
    @labkit.exercise("sent", title="T", answer="before", expected=lambda n: [1] * n)
    def trial(answer: object, here: object) -> object:
        return lab4

    run_cell(lab4, "def before():\n    return 1 + 0")
    with pytest.raises(labkit.UsageError, match="cannot be sent to the ranks"):
        labkit.check("sent")
