"""Another user of the same host: no door of a lab is open to them, nor does their trying end it.

Everything happens in a network namespace of its own, so that the stranger meets no other lab.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs root, who can be any user"
)
#: Users of whom no account is needed.
STRANGER, OWNER = 65534, 65533


@pytest.fixture(scope="module", params=[0, OWNER], ids=["root", "a user"])
def told(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what a lab's owner and a stranger saw (``tests.support.shared_machine_job``)."""
    command = [sys.executable, "-m", "tests.support.shared_machine_job"]
    ran = subprocess.run(
        [*command, str(request.param), str(STRANGER)], capture_output=True, text=True, timeout=400
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def test_a_stranger_gets_nothing(told):
    assert told["got"]["found"] == []


def test_a_stranger_has_tried(told):
    assert told["got"]["connections"] == told["got"]["refused"] > 100
    assert told["got"]["stores"] > 2


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("start 0", ["3.0", "3.0"]),
        ("sub-group", ["3.0", "3.0"]),
        ("reset", ["3.0", "3.0"]),
        ("deadlock", ["Deadlock"]),
        ("repair", ["3.0", "3.0"]),
        ("agents", ["2", "2"]),
        ("calls", ["True", "True"]),
        ("restart", ["3.0", "3.0"]),
        ("again", ["3.0", "3.0"]),
        ("and again", ["3.0", "3.0"]),
        ("start 1", ["3.0", "3.0"]),
    ],
)
def test_the_lab_goes_on(told, step, expected):
    assert told["used"], told["errors"]
    assert json.loads(told["used"])[step] == expected
