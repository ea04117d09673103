"""The stop button at random moments: the notebook is back, and the next cell works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.stop_button import KINDS

pytestmark = pytest.mark.slow

#: How many moments are tried; ``LABKIT_STOPS=500`` takes some twenty minutes.
MOMENTS = int(os.environ.get("LABKIT_STOPS", "14"))
SEED = os.environ.get("LABKIT_STOPS_SEED", "5")
PROGRAM = [sys.executable, "-m", "tests.support.stop_button"]


def test_the_stop_button_at_any_moment_costs_nothing() -> None:
    # The name of the folder must be short: the sockets of a lab are in it.
    with tempfile.TemporaryDirectory(prefix="t", dir=tempfile.gettempdir()) as folder:
        trial = subprocess.run(
            [*PROGRAM, "--count", str(MOMENTS), "--seed", SEED],
            capture_output=True,
            text=True,
            timeout=120 + 60 * MOMENTS,
            env={**os.environ, "TMPDIR": folder},
            cwd=Path(__file__).parents[2],
        )
    lines = [json.loads(line) for line in trial.stdout.splitlines() if line.startswith("{")]
    assert lines, trial.stderr
    assert lines.pop() == {"done": MOMENTS}, trial.stderr
    assert {line["kind"] for line in lines} <= KINDS.keys()
    assert sum(line["pressed"] for line in lines) >= len(lines) / 2
    assert [line for line in lines if line["wrong"]] == []
