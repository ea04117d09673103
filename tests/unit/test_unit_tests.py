"""The guard of this folder: no test in it starts a rank or a kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

import labkit


def test_a_lab_is_refused() -> None:
    with pytest.raises(pytest.fail.Exception, match="fork_server"):
        labkit.start(1)


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-m", "ipykernel_launcher", "-f", "x.json"],
        [sys.executable, "-m", "pytest", "notebooks"],
        [sys.executable, "-c", "import labkit; labkit.start(2)"],
        ["/usr/bin/mpiexec", "-n", "2", "true"],
    ],
)
def test_what_would_start_one_is_refused(command: list[str]) -> None:
    with pytest.raises(pytest.fail.Exception, match="starts no rank and no kernel"):
        subprocess.run(command, check=False)


def test_plain_python_may_run() -> None:
    assert subprocess.check_output([sys.executable, "-c", "print(1)"]) == b"1\n"
