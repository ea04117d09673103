"""How what runs is said to have ended; then ranks are freed, repaired, shown, one error raised."""

from __future__ import annotations

import concurrent.futures
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from labkit.base import times
from labkit.base.errors import Deadlock, Interrupted, LabError, RankDied, RankError
from labkit.runtime import control
from labkit.runtime import follow as module
from labkit.runtime.diagnosis import Ending
from labkit.runtime.follow import finish, follow
from labkit.runtime.watchdog import Suspicion
from tests.support.requests import failed, reply, request_with
from tests.support.virtual_clock import VirtualClock
from tests.unit.runtime.test_diagnosis import waited


class FakeWatcher:
    """Watch nothing; find and suspect what it was told to."""

    polls = 0
    found = None
    suspicion = None
    old = False  #: it has lasted, and was confirmed

    def __init__(self, cluster, asked):
        self.clock = cluster.clock

    def poll(self, replies, failures, seconds):
        type(self).polls += 1
        self.clock.wait(replies, seconds, concurrent.futures.FIRST_COMPLETED)
        return self.found

    def outlasts(self, seconds):
        return seconds is not None and self.old

    def waits(self):
        return {}


@pytest.fixture(autouse=True)
def watcher(monkeypatch):
    monkeypatch.setattr(module, "Watcher", FakeWatcher)
    for name, value in (("polls", 0), ("old", False), ("found", None), ("suspicion", None)):
        monkeypatch.setattr(FakeWatcher, name, value)
    monkeypatch.setattr(control, "sample", lambda cluster, ranks: {})
    return FakeWatcher


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def busy(clock):
    """A request to two ranks, which nobody ends."""
    return request_with([reply(done=False), reply(done=False)], clock=clock)


def case_of(*stuck):
    return SimpleNamespace(stuck=frozenset(stuck))


# -- its exits ------------------------------------------------------------------------------------


def test_what_has_ended_is_left_alone_with_a_time_limit_or_without(clock):
    sent = request_with([reply("ok"), reply(failed("ValueError"))], clock=clock)
    assert follow(sent).kind == ""
    assert follow(sent, timeout=0).kind == ""
    assert clock.time == 0


def test_what_is_short_is_not_watched(clock, busy, watcher):
    for rank in range(2):
        clock.at(times.UNWATCHED / 2, lambda r=rank: busy.replies[r].set_result("ok"))
    assert follow(busy).kind == ""
    assert clock.time == times.UNWATCHED / 2
    assert watcher.polls == 0


def test_it_ends_with_the_last_reply(clock, busy, watcher):
    clock.at(30.01, lambda: busy.replies[1].set_result("ok"))
    clock.at(77.03, lambda: busy.replies[0].set_result("ok"))
    assert follow(busy, timeout=100, suspect=60).kind == ""
    assert clock.time == 77.03
    assert watcher.polls > 1


def test_a_death_is_an_exit_though_others_are_busy(clock, busy):
    def die():
        busy.cluster.deaths[1] = -9

    clock.at(5, die)
    ending = follow(busy)
    assert ending.kind == "died"
    assert "killed from outside" in ending.hint
    assert busy.busy() == [0]
    assert 5 <= clock.time <= 5 + times.TICK


def test_a_deadlock_is_an_exit(clock, busy, watcher):
    case = case_of(1)
    clock.at(5, lambda: setattr(watcher, "found", case))
    ending = follow(busy, timeout=60)
    assert (ending.kind, ending.case) == ("deadlock", case)
    assert 5 <= clock.time <= 5 + times.TICK


def test_a_deadlock_of_ranks_that_were_not_asked_is_none(clock, busy, watcher):
    watcher.found = case_of(3)
    assert follow(busy, timeout=60).kind == "timeout"


def test_a_suspicion_is_an_exit_once_it_is_old(clock, busy, watcher):
    watcher.suspicion = Suspicion(case_of(0, 1), 10.0, clock)
    clock.at(70, lambda: setattr(watcher, "old", True))
    ending = follow(busy, suspect=60)
    assert (ending.kind, ending.case) == ("suspected", watcher.suspicion.case)
    assert 70 <= clock.time <= 70 + 2 * times.TICK


def test_a_time_limit_is_an_exit(clock):
    sent = request_with([reply(), reply(done=False)], clock=clock)
    assert follow(sent, timeout=20).kind == "timeout"
    assert clock.time == pytest.approx(20)
    assert sent.busy() == [1]


@pytest.mark.parametrize("timeout", [0.0, times.UNWATCHED / 2])
def test_a_time_limit_may_be_shorter_than_what_is_not_watched(clock, busy, timeout):
    assert follow(busy, timeout=timeout).kind == "timeout"
    assert clock.time == pytest.approx(timeout, abs=1e-6)


@pytest.mark.parametrize("seconds", [times.UNWATCHED / 2, 7.1])
def test_the_stop_button_is_an_exit(clock, busy, seconds):
    clock.press_at(seconds)
    assert follow(busy, timeout=60).kind == "interrupted"
    assert clock.time == seconds
    assert busy.busy() == [0, 1]


def test_a_busy_machine_does_not_change_the_time_limit(clock, busy, monkeypatch):
    monkeypatch.setattr(times, "pace", SimpleNamespace(factor=20.0))
    assert follow(busy, timeout=20).kind == "timeout"
    assert 20 <= clock.time <= 20 + 2 * times.TICK


# -- what is told meanwhile -----------------------------------------------------------------------


def test_every_tick_shows_what_is_written(clock):
    sent = request_with([reply(stdout="hello\n", done=False), reply()], clock=clock)
    seen = []
    follow(
        sent, on_tick=lambda texts, look, suspicion: seen.append((texts(), suspicion)), timeout=1
    )
    assert 2 < len(seen) < 6
    assert seen[0] == (({0: "hello\n", 1: ""}, {0: "", 1: ""}), None)


def test_an_error_that_a_tick_raises_as_a_stop_does_is_one(busy):
    def tick(texts, look, suspicion):
        raise KeyboardInterrupt

    assert follow(busy, on_tick=tick).kind == "interrupted"


# -- what is only suspected -----------------------------------------------------------------------


def test_a_suspicion_ends_nothing_where_somebody_looks_on(clock, busy, watcher):
    watcher.suspicion, watcher.old = Suspicion(case_of(0, 1), 0.0, clock), True
    ending = follow(busy, timeout=1000)
    assert (ending.kind, ending.case) == ("timeout", watcher.suspicion.case)


def test_a_suspicion_of_ranks_that_were_not_asked_is_none(clock, busy, watcher):
    watcher.suspicion, watcher.old = Suspicion(case_of(7), -60.0, clock), True
    told = []
    ending = follow(busy, suspect=1, timeout=10, on_tick=lambda *args: told.append(args[2]))
    assert (ending.kind, ending.case) == ("timeout", None)
    assert set(told) == {None}


def test_what_is_proved_goes_before_what_is_suspected(clock, busy, watcher):
    watcher.suspicion, watcher.old = Suspicion(case_of(0, 1), -60.0, clock), True
    watcher.found = case_of(0)
    ending = follow(busy, suspect=1)
    assert (ending.kind, ending.case) == ("deadlock", watcher.found)


def test_a_tick_knows_what_is_suspected_and_a_stop_carries_it(clock, busy, watcher):
    watcher.suspicion = Suspicion(case_of(0, 1), 0.0, clock)
    told = []
    clock.press_at(3.1)
    ending = follow(busy, on_tick=lambda *args: told.append(args[2]))
    assert (ending.kind, ending.case) == ("interrupted", watcher.suspicion.case)
    assert told
    assert all(suspicion is watcher.suspicion for suspicion in told)


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


@pytest.mark.parametrize("stopped", [False, True])
def test_the_last_output_is_waited_for_and_not_for_ever(done, monkeypatch, stopped, factor):
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
