"""Questions on the control channel: answered while a cell runs, and left out when not."""

from __future__ import annotations

from labkit.base import times
from labkit.runtime import control
from labkit.wire.requests import (
    AskActivity,
    AskBusy,
    AskConnections,
    AskCurves,
    AskSample,
    AskWait,
    AskWatch,
    Count,
    GiveInput,
    Request,
    Shut,
    Wake,
)
from tests.support.cells import finish_cell, inside, run_cell, send_cell
from tests.support.events import HANG_SECONDS, PATIENT


def ask(lab, questions):
    """Ask ranks that will all answer."""
    return control.ask(inside(lab).cluster, questions, PATIENT)


def test_every_rank_answers_while_a_cell_runs(lab4, gate):
    sent = send_cell(lab4, gate.wait)
    answers = ask(lab4, dict.fromkeys([3, 1], AskActivity()))
    assert sorted(answers) == [1, 3]
    assert sent.busy() == [0, 1, 2, 3]
    gate.open()
    finish_cell(sent)


def test_a_question_that_fails_on_a_rank_is_an_answer_that_does_not_come(lab4):
    run_cell(lab4, "from labkit.rank import unblock; kept, unblock.free = unblock.free, None", [0])
    try:
        assert control.ask(inside(lab4).cluster, {0: Shut(())}, times.Bound(0.3)) == {}
    finally:
        run_cell(lab4, "unblock.free = kept", [0])
    assert ask(lab4, {0: Shut(())}) == {0: Count(0)}


def test_every_question_has_an_answer(lab4):
    questions = [
        AskActivity(),
        AskBusy(),
        AskWatch(()),
        AskSample(),
        AskConnections(),
        Shut(()),
        Wake("no such group", 0, 0),
        AskWait(),
        GiveInput(0, None),
        AskCurves(("rank",), {}),
    ]
    assert {question.request for question in questions} == set(Request)
    for question in questions:
        posted = control.post(inside(lab4).cluster, 3, question)
        if isinstance(question, AskWatch):  # answered when the rank waits, or is asked again
            control.post(inside(lab4).cluster, 3, question)
        assert posted.future.wait(HANG_SECONDS)
        assert type(posted.answer()) is question.answer
