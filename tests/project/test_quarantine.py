"""A test in quarantine has a cause and a date, and leaves it within a month."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

from tests.support import quarantine
from tests.support.conda_versions import ROOT
from tests.support.quarantine import Cause


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, with our ``tests`` there to be found."""
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    env.pop("PYTEST_ADDOPTS", None)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-ra", *args]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


TODAY = datetime.date(2026, 11, 26)


def test_nothing_stays_in_quarantine_for_long() -> None:
    assert not quarantine.overdue(quarantine.QUARANTINE, datetime.date.today())
    known = {"new": Cause(TODAY, "x"), "old": Cause(TODAY - datetime.timedelta(31), "y")}
    assert quarantine.overdue(known, TODAY) == ["old"]


def test_a_known_cause_is_shown_and_an_unknown_one_fails(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "def test_known():\n    assert not 1\n\ndef test_unknown():\n    assert not 2\n"
    )
    (tmp_path / "with_one.py").write_text(
        "import datetime\nfrom tests.support.quarantine import *\n"
        "QUARANTINE['test_a.py::test_known'] = Cause(datetime.date(2026, 11, 26), 'a port')\n"
    )
    done = run(tmp_path, "-p", "with_one")
    assert done.returncode == 1
    assert "1 failed, 1 xfailed" in done.stdout
    assert "XFAIL test_a.py::test_known - a port (since 2026-11-26)" in done.stdout
    assert "FAILED test_a.py::test_unknown" in done.stdout
