"""Where a rank stands in C code, from what it has written."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labkit import times
from labkit.runtime import recovery
from labkit.wire import stack_file
from labkit.wire.protocol import RECORD_FOLDER
from labkit.wire.stack_file import Frame
from tests.support.virtual_clock import VirtualClock

RE = Frame("/usr/lib/python3.11/re/__init__.py", 166, "match")
CELL = Frame("In[3]", 2, "<module>")


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([RE, CELL], "re.match, In[3], line 2"),
        ([Frame("In[3]", 5, "work"), CELL], "In[3], line 5"),
        ([Frame("/lib/statistics.py", 9, "mean"), RE], "statistics.mean"),
        ([Frame("/tmp/ipykernel_77/12.py", 3, "work")], "work, line 3"),
        ([Frame("/tmp/ipykernel_77/12.py", 3, "<module>")], "line 3"),
        (
            [RE, Frame("<frozen importlib._bootstrap>", 241, "_call_with_frames_removed"), CELL],
            "import, In[3], line 2",
        ),
        ([Frame("<ipython-input-1-97f2>", 1, "<lambda>")], "<lambda>, line 1"),
    ],
)
def test_a_place_is_named_after_its_function_and_its_cell(frames: list[Frame], place: str) -> None:
    assert recovery.describe(frames) == place


class Cluster:
    """This process in the place of rank 1; rank 0 is out of reach."""

    def __init__(self, folder: Path) -> None:
        self.launcher = SimpleNamespace(record_folder=lambda: str(folder))
        self.places = [SimpleNamespace(pid=0), SimpleNamespace(pid=os.getpid())]
        self.clock = VirtualClock()
        self.deaths: dict[int, int] = {}

    def signal(self, rank: int, signum: int) -> bool:
        os.kill(self.places[rank].pid, signum)
        return True


@pytest.mark.skipif(stack_file.SIGNAL is None, reason="this system has no such signals")
@pytest.mark.parametrize("seen", [False, True])
def test_a_rank_writes_where_it_is_unless_its_python_has_seen_the_interrupt(
    tmp_path: Path, seen: bool
) -> None:
    assert stack_file.SIGNAL is not None
    path = stack_file.path_of(tmp_path, os.getpid())
    with open(path, "ab", buffering=0) as file:
        faulthandler.register(stack_file.SIGNAL, file=file, all_threads=False)
        try:
            cluster: Any = Cluster(tmp_path)
            if seen:
                file.write(stack_file.SEEN.encode())
            in_c = recovery.places_in_c(cluster, [0, 1])
        finally:
            faulthandler.unregister(stack_file.SIGNAL)
            signal.signal(stack_file.SIGNAL, signal.SIG_DFL)
    assert in_c == ({} if seen else {1: "test_c_code.signal"})


def test_a_lab_without_a_folder_knows_nothing() -> None:
    cluster: Any = SimpleNamespace(launcher=SimpleNamespace(record_folder=str))
    assert recovery.places_in_c(cluster, [0]) == {}


@pytest.mark.parametrize("factor", [1.0, 20.0])
def test_a_rank_that_writes_nothing_is_waited_for_longer_on_a_busy_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    monkeypatch.setattr(times, "pace", SimpleNamespace(factor=factor))
    monkeypatch.setattr(stack_file, "SIGNAL", signal.SIGUSR1)
    cluster: Any = Cluster(tmp_path)
    monkeypatch.setattr(cluster, "signal", lambda rank, signum: True)
    Path(stack_file.path_of(tmp_path, os.getpid())).touch()
    assert recovery.places_in_c(cluster, [1]) == {}
    assert cluster.clock.time == pytest.approx(0.2 * factor, abs=times.STACK_LOOK)


CRASHES = {
    "import ctypes\ndef work():\n    ctypes.string_at(0)\nwork()": (
        "Rank 1 crashed in ctypes.string_at, In[7], line 3."
    ),
    "import os\nos.abort()": "Rank 1 crashed in In[7], line 2.",
    "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)": "",
    "import os\nif os.fork() == 0: os.abort()\nos.wait()\nraise SystemExit(3)": "",
}


@pytest.mark.parametrize("code", CRASHES)
def test_a_rank_that_crashes_says_where(tmp_path: Path, code: str) -> None:
    rank = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from labkit.rank import stack_file; stack_file.install()\n"
            "exec(compile(sys.argv[1], 'In[7]', 'exec'))",
            code,
        ],
        env={**os.environ, RECORD_FOLDER: str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    cluster = Cluster(tmp_path)
    cluster.deaths = {0: -signal.SIGSEGV, 1: rank.wait()}
    cluster.places[1].pid = rank.pid
    assert recovery.crashed_in_c(cluster, [1]) == CRASHES[code]  # type: ignore[arg-type]
    assert recovery.crashed_in_c(cluster, [0]) == ""  # type: ignore[arg-type]


def test_ranks_that_crash_at_one_place_share_a_sentence(tmp_path: Path) -> None:
    """A thread that is none of Python's has no stack."""
    cluster = Cluster(tmp_path)
    stack = '\n\nCurrent thread 0x1 (most recent call first):\n  File "In[3]", line 2 in <module>\n'
    cluster.deaths = {0: -signal.SIGSEGV, 1: -signal.SIGSEGV}
    for rank in (0, 1):
        cluster.places[rank].pid = rank
        text = f"{stack_file.CRASH}Segmentation fault{stack}"
        Path(stack_file.path_of(tmp_path, rank)).write_text(text)
    assert recovery.crashed_in_c(cluster, [0, 1]) == "Ranks 0–1 crashed in In[3], line 2."  # type: ignore[arg-type]
    Path(stack_file.path_of(tmp_path, 0)).write_text(f"{stack_file.CRASH}Aborted\n\n")
    assert recovery.crashed_in_c(cluster, [0]) == ""  # type: ignore[arg-type]
