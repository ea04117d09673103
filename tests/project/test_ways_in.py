"""What Binder, Colab and JupyterHub run, as far as it runs without them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
from traitlets.config import Config

from labkit.base import variables
from labkit.course import material
from tests.support.conda_versions import ROOT

BINDER = ROOT / "binder"
HUB = ROOT / "docs" / "jupyterhub_config.py"
COLAB = ROOT / "docs" / "colab.ipynb"
SOLUTION = "### BEGIN SOLUTION"  # the course stores solutions after it, and copies lack it


def execute(*command: str | Path, home: Path, **more: str) -> str:
    """Run a script as its service does: with labkit's commands on the path, in a home folder."""
    bins = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
    environment = {"HOME": str(home), "PATH": bins, **more}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_binder_takes_the_versions_of_the_top_folder() -> None:
    assert (BINDER / "environment.yml").resolve() == ROOT / "environment.yml"


def test_binder_shows_the_learners_copy_and_no_solution(tmp_path: Path) -> None:
    assert SOLUTION in material.notebooks("00")[0].read_text()
    execute(BINDER / "postBuild", home=tmp_path)
    server = json.loads((tmp_path / ".jupyter/jupyter_server_config.json").read_text())["ServerApp"]
    lab = json.loads((tmp_path / ".jupyter/jupyter_lab_config.json").read_text())["LabApp"]
    assert server["default_url"] == lab["default_url"]
    first = Path(server["root_dir"], lab["default_url"].removeprefix("/lab/tree/"))
    assert "Exercise 00-1" in first.read_text()
    copies = Path(server["root_dir"], "notebooks").glob("*.ipynb")
    assert not any(SOLUTION in path.read_text() for path in copies)


def test_binder_gives_one_thread_to_each_rank_unless_told_otherwise(tmp_path: Path) -> None:
    ask = f"import os; print(os.environ[{variables.THREADS!r}])"
    command = (BINDER / "start", sys.executable, "-c", ask)
    assert execute(*command, home=tmp_path) == "1\n"
    assert execute(*command, home=tmp_path, OMP_NUM_THREADS="2") == "2\n"


def hub() -> Any:
    """Return what JupyterHub would read from the example."""
    config = Config()
    exec(compile(HUB.read_text(), HUB, "exec"), {"get_config": lambda: config})
    return config


def test_the_hub_makes_the_copy_before_the_server(tmp_path: Path) -> None:
    spawner = hub().Spawner
    server = tmp_path / "jupyterhub-singleuser"
    server.write_text('#!/bin/sh\necho "$@"; ls "$JUPYTERHUB_ROOT_DIR"\n')
    server.chmod(0o755)
    folder = tmp_path / "ada"
    more = {"JUPYTERHUB_ROOT_DIR": str(folder), "PATH": f"{tmp_path}:{spawner.environment['PATH']}"}
    out = execute(*spawner.cmd, "--debug", home=tmp_path, **more).splitlines()
    assert out[1:] == ["--KernelManager.transport_encryption=auto --debug", "data", "notebooks"]
    assert (folder / spawner.default_url.removeprefix("/lab/tree/")).is_file()


def test_the_hub_limits_ranks_by_the_variables_that_labkit_reads() -> None:
    environment = hub().Spawner.environment
    assert variables.whole_number(variables.MAX_RANKS, environment) == 4
    assert variables.threads(environment) == 1


def test_the_notebook_for_colab_names_no_address_and_has_the_courses_exercise() -> None:
    notebook = nbformat.read(COLAB, as_version=4)
    nbformat.validate(notebook)
    assert [cell for cell in notebook.cells if cell.get("outputs")] == []
    text = "\n".join(cell.source for cell in notebook.cells)
    assert 'REPOSITORY = ""' in text
    assert "://" not in text
    (exercise,) = [c.source for c in notebook.cells if "Exercise 00-3" in c.source]
    task = exercise.partition("**")[2].partition("**")[2]
    course = nbformat.read(material.notebooks("00")[0], as_version=4)
    assert any(task in cell.source for cell in course.cells)
