"""What the programs that the command line starts find in their environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig

import pytest

from labkit.tools.environment import kernel_environment


def test_the_commands_of_this_python_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = sysconfig.get_path("scripts")
    monkeypatch.setenv("PATH", "/bin")
    assert kernel_environment()["PATH"] == f"{scripts}{os.pathsep}/bin"
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}/bin")
    assert kernel_environment()["PATH"] == f"{scripts}{os.pathsep}/bin"


def test_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABKIT_RANKS", raising=False)
    assert "LABKIT_RANKS" not in kernel_environment()
    assert kernel_environment(3)["LABKIT_RANKS"] == "3"
    monkeypatch.setenv("LABKIT_RANKS", "5")
    assert kernel_environment()["LABKIT_RANKS"] == "5"
    assert "LABKIT_RANKS" not in os.environ or os.environ["LABKIT_RANKS"] == "5"


def test_become_is_the_other_program() -> None:
    """What was printed before is not lost, and the exit status is the other program's."""
    code = (
        "import sys; from labkit.tools.environment import become; print('before', end=' ')\n"
        "become([sys.executable, '-c', 'print(\"after\"); raise SystemExit(7)'])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "before after\n")
