"""Cells that do not block: whoever waits for one hears what a cell that blocks would say."""

from __future__ import annotations

import os
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION

import ipyparallel as ipp
import pytest

import labkit
from labkit import Deadlock, LabError, RankDied, RankError
from tests.support.cells import inside, run_cell
from tests.support.events import HANG_SECONDS, LONG, busy_with, stop_pressed, until

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
        shell.run_cell_magic("px", f"--noblock -o sent {options}", cell)
        return shell.user_ns["sent"]

    yield send
    run_cell(lab, "x = torch.ones(1)\ndist.all_reduce(x)")
    assert [x.item() for x in lab["x"]] == [2, 2]
    assert lab["kept"] == [7, 7]


WAITS = {
    "get": lambda sent: sent.get(),
    "get with a limit": lambda sent: sent.get(30),
    "wait": lambda sent: sent.wait(),
    "wait for all": lambda sent: sent.wait(return_when=ALL_COMPLETED),
    "wait for an error": lambda sent: sent.wait(return_when=FIRST_EXCEPTION),
    "wait_for_output": lambda sent: sent.wait_for_output(),
    "wait_interactive": lambda sent: sent.wait_interactive(widget=False),
    "get_dict": lambda sent: sent.get_dict(),
    "r": lambda sent: sent.r,
    "result": lambda sent: sent.result(),
    "exception": lambda sent: sent.exception(),
    "a loop": list,
}


@pytest.mark.parametrize("wait", WAITS)
def test_every_way_of_waiting_names_a_deadlock(later, wait):
    sent = later(SKIP)
    with pytest.raises(Deadlock, match=r"rank 1 waits for rank 0, which has ended") as caught:
        WAITS[wait](sent)
    assert "formed the process group anew" in str(caught.value)
    with pytest.raises(Deadlock):  # and again
        sent.get()


def test_pxresult_names_it_too(later, shell):
    later(SKIP)
    with pytest.raises(Deadlock, match="rank 1 waits for rank 0"):
        shell.run_line_magic("pxresult", "")


def test_a_blocking_cell_behind_it_names_it_too(later, shell):
    later(SKIP)
    with pytest.raises(Deadlock, match="rank 1 waits for rank 0"):
        shell.run_cell_magic("px", "", "1 + 1\n")


def test_the_status_says_what_it_waits_for(later, lab):
    sent = later(SKIP)
    until(lambda: busy_with({0: "idle", 1: "waiting"})(lab.status()), instead=lab.status)
    first, second = lab.status()
    assert (first.state, second.state) == ("idle", "waiting")
    assert "all_reduce" in second.detail
    assert second.where.endswith("line 4")
    with pytest.raises(Deadlock):
        sent.get()


def test_what_ranks_raise_is_ipyparallels_and_their_group_is_repaired(later):
    sent = later(
        "w = None\nif rank:\n    w = dist.all_reduce(torch.ones(1), async_op=True)\n1 / 0\n"
    )
    with pytest.raises(ipp.error.CompositeError, match="ZeroDivisionError"):
        sent.get()


def test_a_rank_that_failed_and_one_that_waits_for_it(later):
    sent = later("1 / rank\ndist.barrier()\n")
    with pytest.raises(RankError, match="ZeroDivisionError") as caught:
        sent.get()
    assert "rank 1 waited" in str(caught.value)


def test_a_slow_cell_is_as_it_was(later, gate):
    sent = later(f"{gate.wait}\nprint('late', rank)\nrank\n")
    assert type(sent).__name__ == "AsyncResult"
    assert isinstance(sent, ipp.AsyncResult)
    assert repr(sent) == "<AsyncResult(%px): pending>"
    assert not sent.ready()
    assert sent.wait(0.1) is False
    with pytest.raises(TimeoutError):
        sent.get(0.1)
    gate.open()
    results = sent.get()
    assert [r.execute_result["data"]["text/plain"] for r in results] == ["0", "1"]
    assert sent.wait_for_output(HANG_SECONDS)
    assert sent.stdout == ["late 0\n", "late 1\n"]
    assert repr(sent) == "<AsyncResult(%px): finished>"
    assert len(sent.get_dict()) == 2
    assert sent.exception() is None


def test_the_first_that_is_ready_does_not_wait_for_the_others(later, gate):
    sent = later(f"if rank:\n    {gate.wait}\nrank\n")
    done, pending = sent.wait(return_when=FIRST_COMPLETED)
    assert (len(done), len(pending)) == (1, 1)
    assert next(iter(sent)).execute_result["data"]["text/plain"] == "0"
    gate.open()
    sent.get()


def test_stop_leaves_the_ranks_alone_but_in_pxresult(later, lab, shell):
    sent = later(f"import time\ntime.sleep({LONG})\n")
    asleep = busy_with({}, {0: "time.sleep", 1: "time.sleep"})
    with stop_pressed(asleep), pytest.raises(KeyboardInterrupt):
        sent.get()
    assert inside(lab).cluster.busy_ranks() == [0, 1]
    with stop_pressed(asleep), pytest.raises(labkit.Interrupted, match="stopped"):
        shell.run_line_magic("pxresult", "")
    assert inside(lab).cluster.busy_ranks() == []


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
    sent.get()


def test_a_rank_that_dies_is_named(shell, lab):
    shell.run_cell_magic("px", "--noblock -o sent", "import os\nif rank:\n    os._exit(3)\n")
    with pytest.raises(RankDied, match="rank 1 ended with exit code 3"):
        shell.user_ns["sent"].get()
    lab.restart(ranks=[1])
    run_cell(lab, "kept = 7")


def test_one_that_died_after_its_cell_does_not_take_the_results_along(shell, lab):
    shell.run_cell_magic("px", "--noblock -o sent", "rank\n")
    sent = shell.user_ns["sent"]
    assert sent.wait(HANG_SECONDS)
    with pytest.raises(RankDied):
        run_cell(lab, "import os\nos._exit(3)", [1])
    assert len(sent.get()) == 2
    lab.restart(ranks=[1])
