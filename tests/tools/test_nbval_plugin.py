"""nbval with labkit's guard, on tiny notebooks, in a pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import psutil
import pytest
from nbformat import NotebookNode

#: Runs longer than the time-out of these tests, and takes the interrupt for its own.
SWALLOWS_THE_INTERRUPT = """
import time
end = time.monotonic() + 60
try:
    while time.monotonic() < end:
        time.sleep(0.1)
except KeyboardInterrupt:
    pass
"""
#: Leaves a process behind, in a session of its own as labkit's ranks are, that atexit ends.
CELL_NUMBER = "get_ipython().displayhook.prompt_count"
ENDS_ITS_PROCESS = """
import atexit, pathlib, subprocess, sys
command = [sys.executable, "-c", "import time; time.sleep(300)"]
child = subprocess.Popen(command, start_new_session=True)
def end():
    child.terminate()
    pathlib.Path("marker").write_text(str(child.wait()))
_ = atexit.register(end)
"""
#: Neither the request to end nor SIGTERM ends this one.
DOES_NOT_END = """
import atexit, os, pathlib, signal, time
_ = signal.signal(signal.SIGTERM, signal.SIG_IGN)
_ = atexit.register(time.sleep, 300)
_ = pathlib.Path("pid").write_text(str(os.getpid()))
"""


def code(source: str, *, prints: str | None = None, count: int | None = 1) -> NotebookNode:
    """Make a code cell whose stored output is the text that it printed."""
    outputs = [] if prints is None else [nbformat.v4.new_output("stream", text=prints)]
    return nbformat.v4.new_code_cell(source, execution_count=count, outputs=outputs)


def validate(
    folder: Path, mode: str, **notebooks: list[NotebookNode]
) -> dict[str, tuple[str, str]]:
    """Store notebooks by name, run pytest on them, and say what became of every cell.

    Returns ``{"name::Cell 0": (outcome, message)}``; the outcome is passed, failed, error, skipped
    (also for a failure that nbval expects).
    """
    for name, cells in notebooks.items():
        nb = nbformat.v4.new_notebook(cells=cells)
        nb.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(nb, folder / f"{name}.ipynb")
    report = folder / "report.xml"
    options = [f"--junitxml={report}", "-o", "junit_logging=system-err"]
    run_pytest(folder, mode, *options, *(f"{name}.ipynb" for name in notebooks))
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        result = next((part for part in case if part.tag != "system-err"), None)
        outcome = {"failure": "failed"}.get(result.tag, result.tag) if result is not None else ""
        told = case.findtext("system-err", "")
        text = "" if result is None else f"{result.get('message')}\n{result.text}{told}"
        notebook = (case.get("classname") or "").removesuffix(".ipynb")
        outcomes[f"{notebook}::{case.get('name')}"] = (outcome or "passed", text)
    return outcomes


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest with the guard in ``folder``; return its exit code and output."""
    options = [
        "-p",
        "labkit.tools.nbval_plugin",
        "-p",
        "no:cacheprovider",
        "--color=no",
        "-W",
        "error",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--nbval-cell-timeout=10", *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": "", "JUPYTER_PLATFORM_DIRS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebooks")


@pytest.fixture(scope="module")
def strict(folder: Path) -> dict[str, tuple[str, str]]:
    """What ``--nbval`` makes of the notebooks below: one pytest for all of them."""
    return validate(
        folder,
        "--nbval",
        outputs=[
            code("print(1 + 1)", prints="2\n"),
            code("print(1 + 1)", prints="3\n"),
            code("import time; print(time.time())", prints="1700000000.0\n"),
            code("x = 1", count=None),
            code("# NBVAL_SKIP\nx = 1", count=None),
            code("  \n", count=None),
        ],
        slow=[code(SWALLOWS_THE_INTERRUPT), code("print('after')", prints="after\n")],
        ends=[code(ENDS_ITS_PROCESS)],
        warns=[code("import sys; print('a word ' + 'of warning', file=sys.stderr)")],
        counts=[code("x = 1"), code(f"print({CELL_NUMBER})", prints="2\n")],
    )


def test_a_right_output_passes(strict: dict[str, tuple[str, str]]) -> None:
    assert strict["outputs::Cell 0"] == ("passed", "")


def test_a_wrong_output_fails(strict: dict[str, tuple[str, str]]) -> None:
    outcome, text = strict["outputs::Cell 1"]
    assert outcome == "failed"
    assert "Cell outputs differ" in text


def test_what_a_failed_cell_has_written_to_stderr_is_told(
    strict: dict[str, tuple[str, str]],
) -> None:
    outcome, text = strict["warns::Cell 0"]
    assert outcome == "failed"
    assert "a word of warning" in text


def test_nothing_is_sanitised(strict: dict[str, tuple[str, str]]) -> None:
    """What changes from run to run is a difference like any other."""
    outcome, text = strict["outputs::Cell 2"]
    assert outcome == "failed"
    assert "1700000000.0" in text


def test_a_cell_stored_without_having_run_fails(strict: dict[str, tuple[str, str]]) -> None:
    outcome, text = strict["outputs::Cell 3"]
    assert outcome == "failed"
    assert "stored without having run" in text


def test_skipped_and_blank_cells_need_no_count(strict: dict[str, tuple[str, str]]) -> None:
    assert strict["outputs::Cell 4"][0] == "skipped"
    assert strict["outputs::Cell 5"][0] == "passed"


def test_a_timeout_fails_though_the_interrupt_is_swallowed(
    strict: dict[str, tuple[str, str]],
) -> None:
    outcome, text = strict["slow::Cell 0"]
    assert outcome == "failed"
    assert "ran longer than 10 s" in text


def test_only_the_cell_that_timed_out_is_blamed(strict: dict[str, tuple[str, str]]) -> None:
    assert strict["slow::Cell 1"][0] == "passed"


def test_what_a_notebook_registered_for_its_end_happens(
    strict: dict[str, tuple[str, str]], folder: Path
) -> None:
    assert strict["ends::Cell 0"][0] == "passed"
    assert (folder / "marker").read_text() == "-15"


def test_lax_mode_compares_only_marked_cells(tmp_path: Path) -> None:
    cells = [code("x = 1", count=None), code("# NBVAL_CHECK_OUTPUT\nx = 1", count=None)]
    outcomes = validate(tmp_path, "--nbval-lax", lax=cells)
    assert outcomes["lax::Cell 0"][0] == "passed"
    assert outcomes["lax::Cell 1"][0] == "failed"


@pytest.mark.slow  # it waits for the bound, 15 s
def test_a_kernel_that_does_not_end_is_killed(tmp_path: Path) -> None:
    outcomes = validate(tmp_path, "--nbval", stays=[code(DOES_NOT_END)])
    assert outcomes["stays::Cell 0"][0] == "passed"
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_run_without_notebooks_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text("def test_it():\n    assert True\n")
    exit_code, text = run_pytest(tmp_path, "--nbval", ".")
    assert exit_code == 0, text
    assert "1 passed" in text


def test_cells_are_counted(strict: dict[str, tuple[str, str]]) -> None:
    assert strict["counts::Cell 1"] == ("passed", "")
