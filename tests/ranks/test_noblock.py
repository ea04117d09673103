"""``%%px --noblock``: ipyparallel's own result; what comes after it names a deadlock in it."""

from __future__ import annotations

import os

import ipyparallel as ipp
import pytest

import labkit
from labkit import Deadlock, LabError
from tests.support.cells import run_cell
from tests.support.events import HANG_SECONDS, busy_with, until

SKIP = "x = torch.ones(1)\nif rank != 0:\n    dist.all_reduce(x)\n"


@pytest.fixture(scope="module")
def lab(shell):
    with labkit.start(2) as started:
        run_cell(started, "kept = 7")
        yield started


@pytest.fixture
def later(shell, lab):
    """Send a cell that does not block; afterwards the lab has to work as before."""

    def send(cell: str, options: str = "") -> ipp.AsyncResult:
        return shell.run_cell_magic("px", f"--noblock {options}", cell)

    yield send
    run_cell(lab, "x = torch.ones(1)\ndist.all_reduce(x)")
    assert [x.item() for x in lab["x"]] == [2, 2]
    assert lab["kept"] == [7, 7]


def test_the_status_and_the_next_cell_name_a_deadlock(later, lab, shell):
    later(SKIP)
    until(lambda: busy_with({0: "idle", 1: "waiting"})(lab.status()), instead=lab.status)
    second = lab.status()[1]
    assert "all_reduce" in second.detail
    assert second.where.endswith("line 4")
    # The table looks for a deadlock for a moment only.
    until(lambda: "for rank 0, which has ended its cell" in repr(lab.status()))
    with pytest.raises(Deadlock, match="rank 1 waits for rank 0, which has ended") as caught:
        shell.run_cell_magic("px", "", "1 + 1\n")
    assert second.where in str(caught.value)


def test_get_and_pxresult_raise_what_ranks_have_raised(later, shell):
    sent = later("1 / rank\n")
    with pytest.raises(ipp.error.CompositeError, match="ZeroDivisionError"):
        sent.get(HANG_SECONDS)
    with pytest.raises(ipp.error.CompositeError, match="ZeroDivisionError"):
        shell.run_line_magic("pxresult", "")


BUSY = r"^Rank 1 is busy at In\[\d+\], line 2: while not .*; nothing was changed\."
CALLS = {
    "lab.reset()": lambda lab: lab.reset(),
    'lab["x"]': lambda lab: lab["kept"],
    'lab["x"] = 1': lambda lab: lab.__setitem__("kept", 1),
    "lab.run": lambda lab: lab.run(os.getpid),
    "lab.timeline": lambda lab: lab.timeline("1"),
}


def test_what_needs_a_free_rank_says_which_one_is_busy_and_does_not_wait(later, lab, gate):
    sent = later(gate.wait, "--ranks 1")
    until(lambda: busy_with({}, {1: gate.wait})(lab.status()), instead=lab.status)
    for call in CALLS.values():
        with pytest.raises(LabError, match=BUSY) as caught:
            call(lab)
        assert "lab.restart(ranks=[1]) replaces it" in str(caught.value)
    assert len(lab.run(os.getpid, ranks=[0])) == 1
    gate.open()
    sent.get(HANG_SECONDS)
