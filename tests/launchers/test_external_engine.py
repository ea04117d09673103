"""The two processes of a rank that one of ipyparallel's own launchers has started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zmq

from labkit.launch import external_engine
from labkit.wire.protocol import REMOTE_FOLDER
from tests.support.events import HANG_SECONDS

#: Follows the heart of a controller, or gives up.
FOLLOW = """
import sys
from labkit.base import times
from labkit.launch import external_engine

times.CONTROLLER_CLOSED = times.Bound(float(sys.argv[2]))
times.CONTROLLER_SILENT = float(sys.argv[3])
external_engine._follow(sys.argv[1], None, None, None)
"""


def follow(url: str, closed: float, silent: float) -> subprocess.Popen[bytes]:
    """Start what a rank does about its controller."""
    return subprocess.Popen([sys.executable, "-c", FOLLOW, url, str(closed), str(silent)])


def test_a_rank_without_a_controller_ends() -> None:
    assert follow("tcp://127.0.0.1:9", 600, 0.3).wait(HANG_SECONDS) == external_engine.ALONE


def test_a_rank_stays_while_the_heart_beats_and_ends_when_it_is_gone() -> None:
    with zmq.Context() as context:
        heart = context.socket(zmq.PUB)
        port = heart.bind_to_random_port("tcp://127.0.0.1")
        process = follow(f"tcp://127.0.0.1:{port}", 0.3, 1000)
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            heart.send(b"beat")
            time.sleep(0.05)
        assert process.poll() is None
        heart.close(linger=0)
        # Not the 1000 s of silence: the connection was closed.
        assert process.wait(HANG_SECONDS) == external_engine.ALONE


def test_the_last_rank_removes_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lab"
    (folder / "log").mkdir(parents=True)
    monkeypatch.setenv(REMOTE_FOLDER, str(folder))
    first, second = external_engine._lock_folder(), external_engine._lock_folder()
    external_engine._remove_folder(first)
    assert folder.exists()
    os.close(first)
    external_engine._remove_folder(second)
    assert not folder.exists()
    os.close(second)


@pytest.mark.slow
def test_a_rank_that_cannot_register_fails_with_its_reason(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "labkit.launch.external_engine",
            "--mpi",
            "--no-such-option=1",
        ],
        env={**os.environ, "IPP_PROFILE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode > 0
    assert "no-such-option" in done.stdout + done.stderr


#: A rank that hangs while it imports what it needs.
HANGS = """
import importlib, sys, time
from labkit.base import times
from labkit.launch import external_engine

importlib.import_module = lambda name: time.sleep(3)
times.REGISTRATION_STUCK = 0.2
sys.exit(external_engine.main([]))
"""


@pytest.mark.slow
def test_a_rank_that_does_not_come_says_where_it_is(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS],
        env={**os.environ, "IPP_PROFILE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode > 0
    assert "Timeout (0:00:00.2" in done.stderr
    assert "in _run" in done.stderr
