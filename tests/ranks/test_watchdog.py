"""Watch ranks: nothing is asked of those that work, nothing is said while somebody may come."""

from __future__ import annotations

import re
import time

import pytest

from labkit.deadlock.fate import ENDED, NOT_ASKED, Fate
from labkit.runtime import control, recovery
from labkit.runtime.survey import look
from labkit.runtime.watchdog import Watcher
from labkit.wire.requests import Request
from tests.support.cells import finish_cell, inside, send_cell


@pytest.fixture
def lab(lab4):
    lab4.reset()
    return lab4


def watch(lab, code, ranks=(0, 1, 2, 3), seconds=1.2):
    """Run a cell and watch it; return the watcher, the deadlock it found, and the cell."""
    sent = send_cell(lab, f"#px In[7]\n{code}\n", ranks)
    watcher = Watcher(inside(lab).cluster, list(ranks))
    until, case = time.monotonic() + seconds, None
    while case is None and time.monotonic() < until:
        case = watcher.look([], sent.failures(), 0.1)
    return watcher, case, sent


def test_working_ranks_are_asked_once_and_say_nothing(lab, monkeypatch):
    asked = []
    stock = control.post

    def post(cluster, rank, question):
        asked.append((rank, question.request))
        return stock(cluster, rank, question)

    monkeypatch.setattr(control, "post", post)
    code = "import time; end = time.time() + 1.5\nwhile time.time() < end: pass"
    watcher, case, sent = watch(lab, code)
    assert case is None
    assert asked == [(r, Request.WATCH) for r in range(4)]
    assert watcher.waits() == {}
    finish_cell(sent)


def test_who_waits_for_a_slow_rank_is_shown_and_not_declared(lab):
    code = "import time\nif rank == 3:\n    time.sleep(2)\ndist.barrier()"
    watcher, case, sent = watch(lab, code)
    assert case is None
    said = [state.describe() for state in look(inside(lab).cluster, watcher.waits())]
    since = re.search(r", for (\d) s", said[0])
    assert since is not None
    assert int(since[1]) in (0, 1, 2)
    waits = f"waiting in barrier (collective 1){since[0]} at In[7], line 5: dist.barrier()"
    assert [re.sub(r", for \d s", since[0], text) for text in said] == [
        *[waits] * 3,
        "running In[7], line 4: time.sleep(2)",
    ]
    assert finish_cell(sent).ending.kind == ""


def test_a_deadlock_is_found_though_another_rank_computes_on(lab):
    code = (
        "import time\nx = torch.ones(1)\nif rank < 2:\n    dist.send(x, 1 - rank)\n"
        "elif rank == 3:\n    end = time.time() + 5\n    while time.time() < end: pass"
    )
    _, case, sent = watch(lab, code, seconds=4)
    assert case.stuck == {0, 1}
    assert case.fates == {2: ENDED}
    recovery.end(inside(lab).cluster, sent.busy, [0, 1])
    assert sent.busy() == []


def test_what_became_of_the_absent_is_told_apart(lab):
    code = "if rank == 1:\n    1 / 0\nif rank == 0:\n    dist.barrier()"
    _, case, sent = watch(lab, code, ranks=(0, 1, 2), seconds=4)
    assert case.stuck == {0}
    assert case.fates == {
        1: Fate("raised", "ZeroDivisionError"),
        2: ENDED,
        3: NOT_ASKED,
    }
    recovery.end(inside(lab).cluster, sent.busy, [0])
