"""The command that `labkit lab` becomes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from labkit.tools import jupyterlab


def test_what_the_user_adds_comes_last(tmp_path: Path) -> None:
    argv = jupyterlab.command(tmp_path, port=8899, browser=False, extra=["--ServerApp.port=1"])
    assert argv[-1] == "--ServerApp.port=1"
    assert argv.index("--ServerApp.port=8899") < len(argv) - 1


def test_the_first_line_says_where_the_course_is_and_how_to_stop(tmp_path: Path) -> None:
    said = jupyterlab.welcome(tmp_path)
    assert said.startswith(f"{tmp_path} opens in your browser")
    assert "Ctrl-C" in said


def test_the_users_own_configuration_comes_after_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUPYTER_CONFIG_PATH", raising=False)
    assert jupyterlab.server_environment()["JUPYTER_CONFIG_PATH"] == str(jupyterlab.CONFIG)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/mine")
    path = jupyterlab.server_environment()["JUPYTER_CONFIG_PATH"]
    assert path == f"{jupyterlab.CONFIG}{os.pathsep}/mine"


def test_our_configuration_is_well_formed() -> None:
    """Jupyter passes over a file that it cannot read, with a warning among others."""
    files = sorted(path for path in jupyterlab.CONFIG.rglob("*") if path.is_file())
    assert [path.suffix for path in files] == [".json"] * 3
    assert all(json.loads(path.read_text()) for path in files)


def test_notebooks_without_outputs_are_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    cell = nbformat.v4.new_code_cell("x")
    clean = nbformat.v4.new_notebook(cells=[cell])
    output = nbformat.v4.new_output("display_data", {"text/html": "<script>"})
    unsafe = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=[output])])
    for name, notebook in {"clean": clean, "unsafe": unsafe}.items():
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    jupyterlab.trust_notebooks(tmp_path, ["clean.ipynb", "unsafe.ipynb", "data/x.csv"])
    notary = NotebookNotary()
    signed = [notary.check_signature(nbformat.read(tmp_path / f"{name}.ipynb", as_version=4))
              for name in ("clean", "unsafe")]  # fmt: skip
    notary.store.close()
    assert signed == [True, False]


def test_a_jupyter_folder_that_cannot_be_written_does_not_stop_the_course(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_text("a file")
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / "a.ipynb")
    jupyterlab.trust_notebooks(tmp_path, ["a.ipynb"])
