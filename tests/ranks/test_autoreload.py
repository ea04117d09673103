"""Modules beside the notebook that are edited between two cells."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import labkit
from tests.support.cells import results, run_cell

NAME = "labkit_test_beside"


def write(folder: Path, value: int) -> None:
    """Write the module, each time longer: Python compares time and size with its cache."""
    text = f"def f():\n    return {value}\n" + "# edited\n" * value
    (folder / f"{NAME}.py").write_text(text)


def test_an_edited_module_is_new_in_the_next_cell_and_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path, 1)
    cell = f"from {NAME} import f\nf()"
    with labkit.start(2, autoreload=True) as lab:
        assert results(run_cell(lab, cell)) == ["1", "1"]
        write(tmp_path, 2)
        assert results(run_cell(lab, "f()")) == ["2", "2"]
        write(tmp_path, 3)
        assert lab.run(importlib.import_module(NAME).f) == [3, 3]
        lab.restart(ranks=[1])
        assert results(run_cell(lab, cell)) == ["3", "3"]
        write(tmp_path, 4)
        assert results(run_cell(lab, "f()")) == ["4", "4"]
