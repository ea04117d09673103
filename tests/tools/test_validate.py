"""`labkit test` for real, on tiny notebooks."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import nbformat

LABKIT = Path(sysconfig.get_path("scripts")) / "labkit"


def write_notebook(path: Path, *sources: str, prints: str = "") -> Path:
    """Store a notebook; the output of its cells is ``prints``."""
    outputs = [nbformat.v4.new_output("stream", text=prints)] if prints else []
    cells = [
        nbformat.v4.new_code_cell(source, execution_count=count, outputs=outputs)
        for count, source in enumerate(sources, 1)
    ]
    nb = nbformat.v4.new_notebook(cells=cells)
    nb.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(nb, path)
    return path


def test_test_exits_as_pytest_does(tmp_path: Path) -> None:
    write_notebook(tmp_path / "right.ipynb", "print(1 + 1)", prints="2\n")
    done = subprocess.run([LABKIT, "test", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    wrong = write_notebook(tmp_path / "wrong.ipynb", "print(1 + 1)", prints="3\n")
    done = subprocess.run([LABKIT, "test", wrong], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Cell outputs differ" in done.stdout
