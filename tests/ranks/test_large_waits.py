"""What is larger than a connection's buffers is waited for in Python, since gloo forgets it."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import labkit
from tests.support.cells import finish_cell, results, run_cell, send_cell

pytestmark = pytest.mark.slow

#: Float32 numbers whose transfer takes long enough to be cut: 200 MB.
LARGE = 50_000_000
#: What rank 0 is in while rank 1 dies.
CUT = {
    "broadcast": "dist.broadcast(x, 0)",
    "scatter": "dist.scatter(x, [x] * 3 if rank == 0 else None, 0)",
    "send": "dist.send(x, 1) if rank == 0 else dist.recv(x, 0) if rank == 1 else None",
    "many isends": (
        "kind = dist.isend if rank == 0 else dist.irecv\n"
        "works = [kind(x[:n], 1 - rank) for _ in range(20)] if rank < 2 else []\n"
        "for work in works: work.wait()"
    ),
}


@pytest.fixture(scope="module")
def lab3():
    with labkit.start(3) as lab:
        yield lab


@pytest.mark.parametrize("call", CUT.values(), ids=CUT)
def test_a_rank_that_sends_to_one_that_is_killed_comes_back_with_its_variables(lab3, call):
    run_cell(lab3, f"kept = 10 * rank\nn = {LARGE // 5}\nx = torch.zeros({LARGE})\ndist.barrier()")
    pid = lab3.run(os.getpid, ranks=[1])[0]
    # Rank 1 stops in the middle, so the transfer is never over before it is killed.
    threading.Timer(0.03, os.kill, (pid, signal.SIGSTOP)).start()
    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    finished = finish_cell(send_cell(lab3, f"#px In[7]\n{call}\ndist.barrier()"))
    assert isinstance(finished.error, labkit.RankDied)
    assert list(finished.ending.still) == []
    assert "did not return" not in str(finished.error)
    lab3.restart(ranks=[1])
    assert results(run_cell(lab3, "kept", [0, 2])) == ["0", "20"]
    run_cell(lab3, "one = torch.ones(1)\ndist.all_reduce(one)\ntotal = int(one)")
    assert lab3["total"] == [3, 3, 3]


def test_a_large_message_to_a_dropped_handle_is_suspected_and_freed(lab3):
    code = (
        "#px In[7]\n"
        f"x = torch.zeros({LARGE // 10})\n"
        "if rank == 1:\n    dist.irecv(x, 0)\n"
        "dist.barrier()  # else the message may be there before the handle is dropped\n"
        "if rank == 0:\n    dist.send(x, 1)\n"
        "dist.barrier()"
    )
    finished = finish_cell(send_cell(lab3, code), suspect=1.0)
    assert isinstance(finished.error, labkit.SuspectedDeadlock)
    assert list(finished.ending.still) == []
    text = str(finished.error)
    assert "rank 0 waits in send to rank 1 at In[7], line 7:  dist.send(x, 1)" in text
    assert "the handle of an irecv of rank 1 was dropped" in text
    run_cell(lab3, "dist.barrier()")
