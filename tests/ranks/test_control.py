"""Questions on the control channel: answered while a cell runs, and left out when not."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import pytest

from labkit import LabError
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
from tests.conftest import freeze
from tests.support.cells import finish_cell, inside, run_cell, send_cell
from tests.support.events import HANG_SECONDS, PATIENT

ASK_ALL = dict.fromkeys(range(4), AskActivity())


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


def test_each_rank_gets_its_own_content(lab4):
    close_connections = {r: Shut(()) for r in (0, 2)}
    assert ask(lab4, close_connections) == {r: Count(0) for r in (0, 2)}


def test_who_does_not_answer_in_time_is_left_out(lab4):
    pid = lab4.status()[2].pid
    freeze(pid)
    try:
        assert 2 not in control.ask(inside(lab4).cluster, ASK_ALL, times.Bound(0.4))
    finally:
        os.kill(pid, signal.SIGCONT)


def test_the_dead_are_not_asked(lab4):
    inside(lab4).cluster.deaths[1] = -signal.SIGKILL
    try:
        assert control.post(inside(lab4).cluster, 1, AskActivity()) is None
        assert sorted(ask(lab4, ASK_ALL)) == [0, 2, 3]
    finally:
        del inside(lab4).cluster.deaths[1]


def test_a_question_that_fails_on_a_rank_is_an_answer_that_does_not_come(lab4):
    run_cell(lab4, "from labkit.rank import unblock; kept, unblock.free = unblock.free, None", [0])
    try:
        assert control.ask(inside(lab4).cluster, {0: Shut(())}, times.Bound(0.3)) == {}
    finally:
        run_cell(lab4, "unblock.free = kept", [0])
    assert ask(lab4, {0: Shut(())}) == {0: Count(0)}


def test_a_question_that_a_rank_cannot_read_is_refused_at_once(lab4):
    @dataclass(frozen=True)
    class Newer:
        request = Request.SHUT
        answer = Count
        connections: tuple[int, ...] = ()

    with pytest.raises(LabError, match=r"^rank 2 and the notebook do not .* Shut: Object missing"):
        ask(lab4, {2: Newer()})
    assert ask(lab4, {2: AskActivity()}) != {}


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
