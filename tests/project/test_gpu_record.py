"""What comes back from a GPU goes where it belongs, and findings become tests that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from typer.testing import CliRunner

from tests.gpu import record
from tests.gpu.run import pack
from tests.gpu.run.report import Report
from tests.gpu.run.result import Item, Step

MACHINE = {
    "gpus": [{"name": "NVIDIA H100 80GB HBM3", "gib": 79.2}], "driver": "580", "cores": 16,
    "system": "Linux", "python": "3.12.3", "torch": "2.11.0", "cuda": "13.0", "nccl": "2.30.7",
    "nccl_of_torch": "2.28.9", "preloaded": "", "packages": {},
}  # fmt: skip
CELL = "#px In[7]\nx = torch.ones(3, device=device)\nif rank: dist.all_reduce(x)\n"
#: What the fake NCCL shows of it.
RIGHT: dict[str, Any] = {
    "cell": CELL, "before": "", "asked": None, "ranks": 2,
    "ending": "deadlock", "error": "Deadlock", "stuck": [1],
    "lines": [3], "message": "",
}  # fmt: skip
WRONG = {**RIGHT, "stuck": [0, 1]}


def a_report(**changes: Any) -> Report:
    """Return a report with a figure, a failed program, and cells that differ."""
    figure = {"figure": "precision", "ranks": 1, "rows": [{"precision": "fp32", "seconds": 0.1}]}
    differences = [
        {"cell": 3, "id": "aa", "source": "", "expected": "1", "found": "2"},
        {"cell": 4, "id": "bb", "source": "", "expected": "cpu", "found": "cuda:0"},
    ]
    steps = [
        Step("deadlocks-2", [
            Item("t.py::right", "passed", more={"observed": RIGHT}),
            Item("t.py::wrong", "failed", why="assert {0, 1} == {1}", more={"observed": WRONG}),
            Item("t.py::other", "failed", why="assert 1 == 2\nwhere"),
        ]),
        Step("precision-1", [Item("precision-1", "passed", more={"facts": figure})]),
        Step("course-4", [Item("02_collectives", "passed", more={
            "against": "stored", "compared": 9, "differences": differences})]),
        Step("course-1", [Item("02_collectives", "passed", more={
            "against": "build/gpu/reference", "compared": 9, "differences": differences})]),
    ]  # fmt: skip
    return Report("tests.gpu.run", **{"plan": "b", "machine": MACHINE, "steps": steps, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return what came back, packed."""
    out = tmp_path / "out"
    out.mkdir()
    a_report().save(out)
    pack.pack(out, tmp_path / "back")
    return tmp_path / "back"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gpu": False}, "was made without a GPU"),
        ({"machine": {**MACHINE, "gpus": []}}, "was made without a GPU"),
        (None, "has neither report.json nor results.tar.gz"),
    ],
)
def test_what_is_no_report_of_a_gpu_is_refused_in_one_sentence(tmp_path, changes, sentence):
    import typer

    if changes is not None:
        a_report(**changes).save(tmp_path)
    app = typer.Typer()
    app.command()(record.main)
    done = CliRunner().invoke(app, [str(tmp_path)])
    assert done.exit_code == 2
    assert sentence in done.output
    assert done.output.count("\n") == 1


def test_figures_are_kept_with_their_origin(folder, tmp_path):
    path = record.keep_figures(record.read(folder), tmp_path / "measurements")
    assert path is not None
    assert path.name.endswith("nvidia-h100-80gb-hbm3-nccl-2.30.7.json")
    kept = json.loads(path.read_text())
    assert [figure["figure"] for figure in kept["figures"]] == ["precision"]
    assert kept["origin"]["torch"] == "2.11.0"
    assert kept["origin"]["date"]
    nothing = {**record.read(folder), "figures": []}
    assert record.keep_figures(nothing, tmp_path / "none") is None
    assert not (tmp_path / "none").exists()


def test_each_cell_that_waits_says_for_what(folder, tmp_path):
    cells = list(record.waiting())
    assert cells
    assert {what for _, _, what in cells} <= set(record.ANSWERED)
    for name, id, _ in cells:
        nb = nbformat.read(record.NOTEBOOKS / f"{name}.ipynb", as_version=4)
        assert record.WAITS in next(cell.source for cell in nb.cells if cell.id == id)
    waits = nbformat.v4.new_markdown_cell(metadata={"tags": [f"{record.TAG}precision"]})
    nbformat.write(nbformat.v4.new_notebook(cells=[waits]), tmp_path / "07_x.ipynb")
    (line,) = record.can_go(record.read(folder), tmp_path)
    assert line == f"07_x: cell {waits.id}, precision"


def test_what_was_seen_is_added_once(folder, tmp_path):
    found, path = record.read(folder), tmp_path / "seen.json"
    path.write_text('{"programs": [], "cells": {}}')
    assert record.add_seen(found, path) == 2
    seen = json.loads(path.read_text())
    assert [row["test"] for row in seen["programs"]] == ["t.py::wrong"]
    assert seen["programs"][0]["origin"]["nccl"] == "2.30.7"
    assert seen["cells"] == {"02_collectives": {"aa": "2"}}
    assert record.add_seen(found, path) == 0
    assert json.loads(path.read_text()) == seen
    assert record.by_hand(found) == ["deadlocks-2: other: assert 1 == 2 where"]


def test_a_cell_that_shows_something_else_on_nccl_fails_on_the_fake(monkeypatch):
    from tests.course import test_on_fake_nccl as on_fake_nccl

    out = nbformat.v4.new_output("stream", text="1\n")
    cell = nbformat.v4.new_code_cell("print(x)", outputs=[out], id="aa")
    run = nbformat.v4.new_notebook(cells=[cell])
    for text, count in (("1\n", 0), ("2\n", 1)):
        monkeypatch.setattr(on_fake_nccl, "seen_on_nccl", lambda name, text=text: {"aa": text})
        assert len(on_fake_nccl.unlike_nccl("02_collectives", run)) == count
