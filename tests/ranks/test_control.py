"""Questions on the control channel: answered while a cell runs, and left out when not."""

from __future__ import annotations

import os
import signal
import time

from labkit.runtime import control
from tests.conftest import freeze
from tests.support.cells import finish_cell, inside, send_cell


def test_every_rank_answers_while_a_cell_runs(lab4):
    sent = send_cell(lab4, "import time; time.sleep(0.5)")
    answers = control.ask(inside(lab4).cluster, [3, 1], "labkit_survey")
    assert sorted(answers) == [1, 3]
    finish_cell(sent)


def test_each_rank_gets_its_own_content(lab4):
    shut = {r: {"pairs": []} for r in (0, 2)}
    answers = control.ask(inside(lab4).cluster, [0, 2], "labkit_shut", shut)
    assert answers == {r: {"count": 0} for r in (0, 2)}


def test_who_does_not_answer_in_time_is_left_out(lab4):
    pid = lab4.status()[2].pid
    freeze(pid)
    try:
        began = time.monotonic()
        answers = control.ask(inside(lab4).cluster, range(4), "labkit_survey", seconds=0.4)
        assert time.monotonic() - began < 1
        assert 2 not in answers
    finally:
        os.kill(pid, signal.SIGCONT)


def test_the_dead_are_not_asked(lab4):
    inside(lab4).cluster.deaths[1] = "signal 9 (SIGKILL)"
    try:
        assert control.post(inside(lab4).cluster, 1, "labkit_survey") is None
        assert sorted(control.ask(inside(lab4).cluster, range(4), "labkit_survey")) == [0, 2, 3]
    finally:
        del inside(lab4).cluster.deaths[1]


def test_a_question_that_fails_on_a_rank_is_an_answer_that_does_not_come(lab4):
    assert control.ask(inside(lab4).cluster, [0], "labkit_shut", {0: {}}, seconds=0.3) == {}
    assert control.ask(inside(lab4).cluster, [0], "labkit_survey") != {}
