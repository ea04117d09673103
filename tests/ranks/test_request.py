"""Waiting for ranks: replies, last outputs, questions that nobody answers."""

import os
import signal

import pytest

import labkit
from tests.conftest import freeze
from tests.support.cells import finish_cell, run_cell, send_cell
from tests.support.events import until


def test_the_last_output_is_never_missed(lab4):
    for _ in range(20):
        outcomes = run_cell(lab4, "print('x' * 5000)\nrank")
        assert [len(o.stdout) for o in outcomes] == [5001] * 4
        assert [o.result["data"]["text/plain"] for o in outcomes] == list("0123")


def test_outcomes_are_in_the_order_of_the_ranks_asked(lab4):
    outcomes = finish_cell(send_cell(lab4, "rank", [2, 0])).outcomes
    assert [(o.rank, o.result["data"]["text/plain"]) for o in outcomes] == [(2, "2"), (0, "0")]


def test_busy_lists_who_has_not_ended(lab4, gate):
    sent = send_cell(lab4, f"if rank > 1:\n    {gate.wait}")
    until(lambda: sent.busy() == [2, 3], instead=sent.busy)
    gate.open()
    finish_cell(sent)
    assert sent.busy() == []


def test_a_stopped_rank_does_not_answer_and_the_others_do(lab4):
    pid = lab4.status()[2].pid
    freeze(pid)
    states = ["idle", "idle", "no answer", "idle"]
    try:  # another one may be late on a busy machine
        until(lambda: [s.state for s in lab4.status()] == states, instead=lab4.status)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert lab4.run(lambda: 1) == [1] * 4


def test_a_death_frees_the_notebook_though_others_wait_in_a_collective():
    def die_or_wait():
        import os
        import signal

        import torch.distributed as dist

        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        dist.barrier()

    with labkit.start(3) as lab:
        with pytest.raises(labkit.RankDied, match=r"rank 1 ended with signal 11 \(SIGSEGV\)"):
            lab.run(die_or_wait)
        lab.restart()
        assert lab.run(lambda: 1) == [1] * 3
