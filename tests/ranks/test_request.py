"""Waiting for ranks: replies, last outputs, questions that nobody answers."""

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
