"""The command that `labkit lab` becomes."""

from __future__ import annotations

from pathlib import Path

from labkit.tools import jupyterlab


def test_what_the_user_adds_comes_last(tmp_path: Path) -> None:
    argv = jupyterlab.command(tmp_path, port=8899, browser=False, extra=["--ServerApp.port=1"])
    assert argv[-1] == "--ServerApp.port=1"
    assert argv.index("--ServerApp.port=8899") < len(argv) - 1
