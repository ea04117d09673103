"""``%%px --noblock``: a cell that waits for ever is named where somebody looks at it."""

from __future__ import annotations

import re

import pytest

import labkit
from labkit import Deadlock
from tests.support.alarm import alarm
from tests.support.cells import inside
from tests.support.events import HANG_SECONDS, busy_with, until

pytestmark = pytest.mark.slow

SKIP = "if rank:\n    dist.all_reduce(torch.ones(1))\n"
SUM = "x = torch.tensor([rank + 1.0])\ndist.all_reduce(x)\nx.item()\n"


@pytest.fixture(scope="module", params=[2, 4])
def module_lab(shell, request):
    with labkit.start(request.param) as started:
        yield started


@pytest.fixture
def lab(module_lab):
    if inside(module_lab).cluster.busy_ranks():  # a test before this one failed
        module_lab.restart()
    module_lab["kept"] = 7
    return module_lab


@pytest.fixture(autouse=True)
def _alarm():
    with alarm(int(HANG_SECONDS)):
        yield


def send(shell, code=SKIP):
    """Send a cell with ``--noblock``; return its result and where its second line is."""
    shell.run_cell_magic("px", "--noblock -o later", code)
    return shell.user_ns["later"], f"In[{shell.displayhook.prompt_count}], line 3"


def usable(shell, lab, capsys):
    """Check that the ranks are in one group and have their variables."""
    n = len(lab)
    assert lab["kept"] == [7] * n
    capsys.readouterr()
    shell.run_cell_magic("px", "", SUM)
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert out == f"ranks 0–{n - 1}: {n * (n + 1) / 2}\n"


def test_get_raises_the_deadlock(shell, lab, capsys):
    later, place = send(shell)
    with pytest.raises(Deadlock, match="rank 0, which has ended its cell") as caught:
        later.get()
    assert place in str(caught.value)
    usable(shell, lab, capsys)


def test_wait_raises_the_deadlock_and_so_does_get(shell, lab, capsys):
    later, place = send(shell)
    with pytest.raises(Deadlock):
        later.wait()
    with pytest.raises(Deadlock, match="rank 0, which has ended its cell") as caught:
        later.get()
    assert place in str(caught.value)
    usable(shell, lab, capsys)


def test_the_next_cell_names_the_deadlock(shell, lab, capsys):
    _, place = send(shell)
    with pytest.raises(Deadlock, match="rank 0, which has ended its cell") as caught:
        shell.run_cell_magic("px", "", "1\n")
    assert place in str(caught.value)
    usable(shell, lab, capsys)


def test_the_status_names_the_deadlock(shell, lab, capsys):
    later, place = send(shell)
    until(lambda: busy_with({1: "waiting"})(lab.status()), instead=lab.status)
    shown = []
    # The table looks for a deadlock for a moment only.
    until(lambda: shown.append(repr(lab.status())) or "which has ended" in shown[-1])
    text = shown[-1]
    assert "all_reduce" in text
    assert place in text
    assert "for rank 0, which has ended its cell" in text
    with pytest.raises(Deadlock):
        later.get()
    usable(shell, lab, capsys)


def test_a_result_that_comes_late_is_waited_for(shell, lab):
    later, _ = send(shell, "import time\ntime.sleep(2 * rank)\ndist.barrier()\nrank\n")
    assert len(later.get()) == len(lab)
