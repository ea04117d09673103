"""Watch ranks: nothing is asked of those that work, nothing is said while somebody may come."""

from __future__ import annotations

import time

import pytest

import labkit
from labkit.deadlock.exit_reason import ENDED, NOT_ASKED, ExitReason
from labkit.runtime import control, recovery
from labkit.runtime.watchdog import Watcher
from labkit.wire.requests import Request
from tests.support.cells import finish_cell, inside, run_cell, send_cell
from tests.support.events import HANG_SECONDS


@pytest.fixture
def lab(lab4):
    lab4.reset()
    return lab4


def watch(lab, code, ranks=(0, 1, 2, 3), seconds=HANG_SECONDS):
    """Run a cell and watch it; return the watcher, the deadlock it found, and the cell.

    ``seconds`` are for one in which there is none.
    """
    sent = send_cell(lab, f"#px In[7]\n{code}\n", ranks)
    watcher = Watcher(inside(lab).cluster, list(ranks))
    until, case = time.monotonic() + seconds, None
    while case is None and time.monotonic() < until:
        case = watcher.poll([], sent.failures(), 0.1)
    return watcher, case, sent


def test_working_ranks_are_asked_once_and_say_nothing(lab, monkeypatch, gate):
    asked = []
    original = control.post

    def post(cluster, rank, question):
        asked.append((rank, question.request))
        return original(cluster, rank, question)

    monkeypatch.setattr(control, "post", post)
    watcher, case, sent = watch(lab, gate.compute, seconds=1.2)
    assert case is None
    assert asked == [(r, Request.WATCH) for r in range(4)]
    assert watcher.waits() == {}
    gate.open()
    finish_cell(sent)


def test_what_became_of_the_absent_is_told_apart(lab):
    code = "if rank == 1:\n    1 / 0\nif rank == 0:\n    dist.barrier()"
    _, case, sent = watch(lab, code, ranks=(0, 1, 2))
    assert case.stuck == {0}
    assert case.exit_reasons == {
        1: ExitReason("raised", "ZeroDivisionError"),
        2: ENDED,
        3: NOT_ASKED,
    }
    recovery.end(inside(lab).cluster, sent.busy, [0])


#: What freezegun does: functions of its own stand wherever those of ``time`` did.
FREEZE = """
import sys, time
for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
    real = getattr(time, name)
    def still(value=real()): return value
    for module in list(sys.modules.values()):
        for own in [n for n, v in list(getattr(module, "__dict__", {}).items()) if v is real]:
            setattr(module, own, still)
"""


def test_a_clock_that_a_test_has_frozen_blinds_nobody():
    with labkit.start(2) as own:
        run_cell(own, FREEZE)
        with pytest.raises(labkit.Deadlock, match="rank 1 waits in barrier"):
            run_cell(own, "if rank: dist.barrier()")
        run_cell(own, "dist.barrier()")
