"""Large values between notebook and ranks: through memory that has no name, so that nothing is
left of it, however a transfer ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import labkit
from labkit import RankDied, RankError
from labkit.wire.memory_files import MemoryFile
from labkit.wire.packing import LARGE
from tests.support.cells import inside, restored, run_cell
from tests.support.events import Gate, Marks, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux"),
]

VALUE = {"t": torch.arange(2.0 * LARGE), "a": np.arange(LARGE), "s": "x" * LARGE, "n": 3}


def open_files(pid: int | str = "self") -> list[str]:
    """List the files in memory that a process has open."""
    folder = Path(f"/proc/{pid}/fd")
    links = []
    for number in os.listdir(folder):
        try:
            links.append(os.readlink(folder / number))
        except OSError:  # the folder's own, closed by now
            continue
    return [link for link in links if link.startswith("/memfd:labkit")]


def shared() -> set[str]:
    """List what has a name in ``/dev/shm``, but for what other programs make there meanwhile."""
    return {name for name in os.listdir("/dev/shm") if "labkit" in name}


@pytest.fixture(scope="module")
def lab() -> Iterator[labkit.Lab]:
    with labkit.start(2) as lab:
        yield lab


@pytest.fixture(autouse=True)
def _nothing_is_left(lab: labkit.Lab) -> Iterator[None]:
    before = shared()
    yield
    restored(lab)
    assert [open_files(), *(open_files(p.pid) for p in inside(lab).cluster.places)] == [[]] * 3
    assert shared() == before


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[MemoryFile]:
    """The files that the notebook makes."""
    files: list[MemoryFile] = []
    create = MemoryFile.create

    def note() -> MemoryFile:
        files.append(create())
        return files[-1]

    monkeypatch.setattr(MemoryFile, "create", note)
    return files


def equal(a: Any, b: Any) -> bool:
    return bool(a["t"].equal(b["t"]) and (a["a"] == b["a"]).all() and a["s"] == b["s"])


def round_trips(lab: labkit.Lab) -> None:
    """Send a value there and back in all ways."""
    lab["x"] = VALUE
    assert (
        lab.run(lambda x: (x["t"].sum().item(), x["n"]), VALUE)
        == [
            (VALUE["t"].sum().item(), 3)  # type: ignore[attr-defined]
        ]
        * 2
    )
    run_cell(lab, "x['t'] += rank")
    first, second = lab["x"]
    assert equal(first, VALUE)
    assert second["t"].equal(VALUE["t"] + 1)  # type: ignore[operator]
    assert all(equal(back, VALUE) for back in lab.run(lambda x: x, VALUE))


def test_values_go_there_and_back_and_each_rank_has_its_own(
    lab: labkit.Lab, made: list[MemoryFile]
) -> None:
    round_trips(lab)
    assert len(made) == 1 + 3 + 2 + 3
    lab.restart()
    lab["x"] = VALUE
    assert len(made) == 9 + 2  # one to ask the fresh ranks whether they can open it


def test_ranks_of_another_host_are_sent_all_in_messages(
    lab: labkit.Lab, made: list[MemoryFile]
) -> None:
    cluster = inside(lab).cluster
    cluster.places[1] = replace(cluster.places[1], shares_memory=False)
    lab["x"] = VALUE
    assert made == []
    round_trips(lab)
    lab.restart()


def limited(limit: int, function: Callable[[], Any]) -> Any:
    """Call a function where no file, those in memory too, may be longer than ``limit``."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        return function()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_full_memory_makes_it_slower_only(lab: labkit.Lab) -> None:
    limited(2 * LARGE, lambda: round_trips(lab))
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, -1))"
    run_cell(lab, code)
    round_trips(lab)
    lab.restart()


class Ending:
    """Comes after something large in a pickle, and ends who pickles or loads it."""

    def __init__(self, pickled: str = "", loaded: str = "") -> None:
        self.large = torch.ones(2 * LARGE)
        self.pickled, self.loaded = pickled, loaded

    def __reduce__(self) -> Any:
        exec(self.pickled)
        return exec, (self.loaded,)


KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
#: On a rank: a value whose large part is in the file before its last part ends the rank.
LATE = """
class Late:
    def __reduce__(self):
        exec({code!r})
        return list, ()
x = [torch.ones(1 << 20), Late() if rank else 0]
"""


def test_a_rank_that_is_killed_in_the_middle_is_named(lab: labkit.Lab) -> None:
    run_cell(lab, LATE.format(code=KILL))
    with pytest.raises(RankDied, match="rank 1"):
        lab["x"]
    restored(lab)
    with pytest.raises(RankDied, match="ranks 0–1"):
        lab["x"] = [torch.ones(2 * LARGE), Ending(loaded=KILL)]


def test_an_error_and_a_stop_in_the_middle_leave_nothing(lab: labkit.Lab) -> None:
    run_cell(lab, LATE.format(code="raise KeyboardInterrupt"))
    with pytest.raises(RankError, match="KeyboardInterrupt"):
        lab["x"]
    with pytest.raises(KeyboardInterrupt):
        lab["x"] = [torch.ones(2 * LARGE), Ending(pickled="raise KeyboardInterrupt")]
    with pytest.raises(RankError, match="ZeroDivisionError"):
        lab["x"] = [torch.ones(2 * LARGE), Ending(loaded="1 / 0")]


PROGRAM = """
import sys, torch, labkit
from labkit.wire.packing import LARGE
class Waits:
    def __reduce__(self):
        return exec, (sys.argv[1],)
lab = labkit.start(2)
print(*lab.run(__import__("os").getpid), flush=True)
lab["x"] = [torch.ones(2 * LARGE), Waits()]
"""


def test_a_notebook_that_is_killed_in_the_middle_leaves_nothing(gate: Gate, marks: Marks) -> None:
    code = "import os; " + marks.make("os.getpid()") + "\n" + gate.wait
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, code], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    with program.stdout as stream:
        pids = [int(word) for word in stream.readline().split()]
        until(lambda: marks.count() == 2)
        assert len(open_files(program.pid)) == 1
        program.send_signal(signal.SIGKILL)
        program.wait()
    until(lambda: not any(map(psutil.pid_exists, pids)))
