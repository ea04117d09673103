"""What is done at the end: ranks freed, the group repaired, output shown, one error raised."""

from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace

import cloudpickle
import pytest

from labkit import times
from labkit.errors import Deadlock, Interrupted, LabError, RankDied, RankError
from labkit.runtime import follow as module
from labkit.runtime.diagnosis import Ending
from labkit.runtime.follow import finish
from labkit.runtime.request import values
from labkit.wire.outcome import Outcome
from tests.support.requests import failed, reply, request_with
from tests.support.virtual_clock import VirtualClock
from tests.unit.runtime.test_diagnosis import waited


@pytest.fixture
def done(monkeypatch):
    """Free no rank; return what would have been done, in order."""
    calls = []

    def interrupt(cluster, busy, signum):
        calls.append(("interrupt", signum))
        return [1], []

    def end(cluster, busy, stuck):
        calls.append(("end", stuck))
        return []

    def sleep(seconds):
        raise AssertionError(f"sleeps {seconds} s beside the clock")

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(module.recovery, "interrupt", interrupt)
    monkeypatch.setattr(module.recovery, "end", end)
    monkeypatch.setattr(module.recovery, "out_of_step", lambda cluster: False)
    return calls


def test_what_went_well_is_left_alone(done):
    sent = request_with([reply(("ok", None), stdout="a\n"), reply(("ok", None))])
    finished = finish(sent, Ending())
    assert [o.stdout for o in finished.outcomes] == ["a\n", ""]
    assert (finished.error, finished.shows_more(), done) == (None, True, [])
    assert sent.group.repairs == 0


def test_nothing_to_show():
    assert not finish(request_with([reply(("ok", None))]), Ending()).shows_more()


def test_output_is_shown_before_the_error_is_raised(done):
    sent = request_with([reply(stdout="a\n"), reply(failed("ValueError", "boom"))])
    shown = []
    with pytest.raises(RankError, match="rank 1: ValueError: boom"):
        finish(sent, Ending(), show=shown.append)
    assert [o.stdout for o in shown[0].outcomes] == ["a\n", ""]
    assert sent.group.repairs == 0  # in step
    tolerated = finish(sent, Ending(), tolerate=True)
    assert str(tolerated.error) == "rank 1: ValueError: boom"


def test_ranks_that_are_out_of_step_after_an_error_get_a_new_group(done, monkeypatch):
    monkeypatch.setattr(module.recovery, "out_of_step", lambda cluster: True)
    sent = request_with([reply(), reply(failed("ValueError"))])
    finished = finish(sent, Ending(), tolerate=True)
    assert (sent.group.repairs, finished.ending.repaired) == (1, True)
    assert "The ranks were out of step" in str(finished.error)


def test_ranks_that_wait_in_vain_are_freed_at_once_and_meet_again(done):
    closed, clock = reply(failed("RuntimeError", "Connection closed")), VirtualClock()
    sent = request_with([reply(), closed, closed], clock=clock)
    with pytest.raises(Deadlock, match="labkit freed ranks 1–2 and formed the process group anew"):
        finish(sent, Ending("deadlock", case=waited()))
    assert done == [("end", [1, 2])]
    assert sent.group.repairs == 1
    assert clock.time == 0


@pytest.mark.parametrize(
    ("kind", "signum", "error"),
    [("interrupted", "SIGTERM", Interrupted), ("timeout", "SIGINT", RankError),
     ("died", "SIGINT", RankDied)],
)  # fmt: skip
def test_what_still_runs_is_stopped_at_once(done, kind, signum, error):
    clock = VirtualClock()
    sent = request_with([reply(), reply(failed("KeyboardInterrupt"))], clock=clock)
    if kind == "died":
        sent.cluster.deaths[0] = 3
    with pytest.raises(error):
        finish(sent, Ending(kind), signum="SIGTERM")
    assert done == [("interrupt", signum)]
    assert sent.group.repairs == 1  # a rank had to be freed
    assert clock.time == 0


def test_a_time_limit_says_where_it_found_the_ranks(done):
    error = finish(request_with([reply(), reply(failed("KeyboardInterrupt"))]), Ending("timeout"),
                   tolerate=True).error  # fmt: skip
    assert "TimedOut" in error.blocks[0]
    assert error.blocks[0].endswith(": its time was up.")
    assert str(error).startswith("rank 1: stopped")
    assert "labkit freed rank 1 and formed the process group anew." in str(error)


def test_stop_pressed_while_ranks_are_freed_is_an_interrupt(done, monkeypatch):
    def end(cluster, busy, stuck):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.recovery, "end", end)
    sent = request_with([reply(), reply(failed("KeyboardInterrupt"))])
    case = SimpleNamespace(stuck=frozenset({1}))
    with pytest.raises(Interrupted):
        finish(sent, Ending("deadlock", case=case))
    assert done == [("interrupt", "SIGINT")]


def test_a_group_that_cannot_be_repaired_is_for_the_next_cell(done):
    sent = request_with([reply(), reply(failed("KeyboardInterrupt"))])

    def repair():
        raise LabError("a rank is busy")

    sent.group.repair = repair
    finished = finish(sent, Ending("interrupted"), tolerate=True)
    assert sent.group.broken
    assert not finished.ending.repaired


def test_values_are_unpickled_where_there_are_any():
    sent = [Outcome(0, value=("ok", cloudpickle.dumps([1, 2]))), Outcome(1, value=("ok", None))]
    assert values([*sent, Outcome(2, error=("E", "", []))]) == [[1, 2], None, None]


@pytest.mark.parametrize("factor", [1.0, 20.0])
@pytest.mark.parametrize("stopped", [False, True])
def test_the_last_output_is_waited_for_and_not_for_ever(done, monkeypatch, stopped, factor):
    monkeypatch.setattr(times, "pace", SimpleNamespace(factor=factor))
    monkeypatch.setattr(module.interrupts, "has_come", lambda: stopped)
    clock = VirtualClock()
    late, never = reply(("ok", None)), reply(("ok", None))
    late.output, never.output = Future(), Future()
    clock.at(0.3 * factor, lambda: late.output.set_result(None))
    finish(request_with([late], clock=clock), Ending())
    assert clock.time == pytest.approx(0.3 * factor)
    clock.time = 0.0
    finish(request_with([never], clock=clock), Ending())
    assert clock.time == pytest.approx((0.5 if stopped else 5.0) * factor)


def output_comes(sent, text="more\n"):
    content = {"name": "stdout", "text": text}
    sent.labkit_output.note({"header": {"msg_type": "stream"}, "content": content})


def test_the_wait_for_the_last_output_begins_anew_with_each_that_comes(done):
    clock, slow = VirtualClock(), reply(("ok", None))
    slow.output = Future()
    for second in (4, 8, 12):
        clock.at(second, lambda: output_comes(slow))
    clock.at(13, lambda: slow.output.set_result(None))
    (outcome,) = finish(request_with([slow], clock=clock), Ending()).outcomes
    assert (clock.time, outcome.stdout, outcome.stderr) == (13, "more\n" * 3, "")


def test_output_that_does_not_come_is_said_to_be_missing(done):
    clock, slow = VirtualClock(), reply(("ok", None))
    slow.output = Future()
    clock.at(4, lambda: output_comes(slow))
    sent = request_with([slow, reply(("ok", None))], clock=clock)
    first, second = finish(sent, Ending()).outcomes
    assert (first.stdout, first.stderr) == ("more\n", module.REST)
    assert second.stderr == ""


def test_after_the_stop_more_output_does_not_prolong_the_wait(done, monkeypatch):
    monkeypatch.setattr(module.interrupts, "has_come", lambda: True)
    clock, endless = VirtualClock(), reply(("ok", None))
    endless.output = Future()
    for tenth in range(1, 100):
        clock.at(tenth / 10, lambda: output_comes(endless))
    (outcome,) = finish(request_with([endless], clock=clock), Ending()).outcomes
    assert clock.time == pytest.approx(0.5)
    assert outcome.stderr == module.REST


def test_output_of_a_rank_that_has_died_is_not_waited_for(done):
    clock, dead, living = VirtualClock(), reply(), reply()
    dead.output, living.output = Future(), Future()
    clock.at(1, lambda: living.output.set_result(None))
    sent = request_with([dead, living], clock=clock)
    sent.cluster.deaths[0] = 3
    with pytest.raises(RankDied):
        finish(sent, Ending("died"))
    assert clock.time == pytest.approx(1)
