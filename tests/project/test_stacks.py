"""A test that fails shows where the ranks hang that it has left."""

from __future__ import annotations

from pathlib import Path

from tests.project.test_quarantine import run
from tests.support.system import needs

pytestmark = needs("gdb")

#: A process that a reader of command lines takes for a rank; it holds Python's lock in C.
HANGS = """
import subprocess, sys, pytest

CODE = "import ctypes; print('begun', flush=True); ctypes.PyDLL(None).sleep(300)"

@pytest.fixture
def rank():
    command = [sys.executable, "-c", CODE, "labkit.launch.zygote"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()

def test_it(rank):
    assert {}
"""


def test_the_stacks_of_what_hangs_are_shown_when_a_test_fails(tmp_path: Path) -> None:
    (tmp_path / "test_here.py").write_text(HANGS.format("not rank"))
    shown = run(tmp_path, "-p", "tests.support.stacks").stdout
    assert "where ranks hang" in shown
    assert "nanosleep" in shown
    (tmp_path / "test_here.py").write_text(HANGS.format("rank"))
    assert "where ranks hang" not in run(tmp_path, "-p", "tests.support.stacks").stdout
