"""Which ranks are compared, how long a suspicion lasts, and what outside may still send."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.base import times
from labkit.deadlock.confirmation import CONFIRM_TIMES
from labkit.deadlock.wait_graph import judge
from labkit.runtime import control, watchdog
from labkit.wire.samples import Group, Issuer, Sample, Wait
from labkit.wire.state import RankState
from tests.support.virtual_clock import VirtualClock

KEY = ("0", (0, 1))
WORLD = {KEY: Group(KEY, 0, {}, {}, 0)}


def receives(rank, *issuers, still=True):
    """Make a rank that waits for a message of the other one."""
    wait = Wait("recv", ((KEY, 1),), peer=1 - rank)
    return Sample(rank, "waiting", still, wait, (7 + rank,), WORLD, issuers=issuers)


@pytest.fixture
def ranks(monkeypatch):
    """What the two ranks answer; one that is not in here does not."""
    answers: dict[int, Sample] = {}
    monkeypatch.setattr(
        control, "sample", lambda c, asked: {r: answers[r] for r in asked if r in answers}
    )
    monkeypatch.setattr(control, "post", lambda cluster, rank, question: None)
    monkeypatch.setattr(watchdog, "doubts_outside", lambda *about: ())
    return answers


def watch(waiting):
    """Follow two busy ranks, of which some have said that they wait."""
    cluster = SimpleNamespace(
        busy_ranks=lambda: [0, 1],
        size=2,
        deaths={},
        client=None,
        has_strangers=lambda: False,
        clock=VirtualClock(),
    )
    watcher = watchdog.Watcher(cluster, [0, 1])
    for rank, sample in waiting.items():
        watcher.waiting[rank] = sample
        watcher._heard[rank] = 0.0
    return watcher


def look(watcher):
    """Look once; return the ranks of a deadlock that is proved."""
    watcher._due = 0.0
    case = watcher.poll([], {}, 0.0)
    return frozenset() if case is None else case.stuck


def test_a_rank_out_of_reach_for_a_moment_is_asked_again(ranks):
    """It has said once that it waits, and will not say so again."""
    both = {rank: receives(rank) for rank in range(2)}
    watcher = watch(both)
    ranks[0] = both[0]
    assert look(watcher) == frozenset()
    ranks[1] = both[1]
    assert look(watcher) == {0, 1}


def test_a_rank_that_has_run_since_is_not_asked_again(ranks):
    both = {rank: receives(rank) for rank in range(2)}
    watcher = watch(both)
    ranks[0], ranks[1] = both[0], Sample(1, "computing", stamp=(9,), groups=WORLD)
    look(watcher)
    assert watcher.waiting.keys() == {0}


def test_a_rank_that_runs_between_two_looks_is_in_no_deadlock(ranks):
    """Whatever it waits for when it is looked at: it comes to that again and again."""
    ranks.update({rank: receives(rank) for rank in range(2)})
    watcher = watch(ranks)

    def run(stamp):
        ranks[1] = dataclasses.replace(ranks[1], stamp=(stamp,))
        watcher.clock.at(watcher.clock.now() + 0.1, lambda: run(stamp + 1))

    watcher.clock.at(0.05, lambda: run(100))
    assert look(watcher) == frozenset()
    watcher.clock = VirtualClock()  # it stands still now
    assert look(watcher) == {0, 1}


def test_a_rank_that_gets_work_while_it_is_looked_at_can_come(ranks, monkeypatch):
    """A task of the notebook sends it a request, and is over before anybody asks for tasks."""
    ranks.update({0: receives(0), 1: Sample(1, "idle", True, groups=WORLD)})
    watcher = watch({0: ranks[0]})
    busy = [0]
    watcher.cluster.busy_ranks = lambda: list(busy)
    told: list[tuple[str, ...]] = [("a task of this notebook is pending",)]

    def doubts(*about):
        if told:
            return told.pop()
        busy[1:] = [1]  # it was sent before the task was over
        return ()

    monkeypatch.setattr(watchdog, "doubts_outside", doubts)
    assert look(watcher) == frozenset()
    assert (told, busy) == ([], [0, 1])
    busy.remove(1)
    monkeypatch.setattr(watchdog, "doubts_outside", lambda *about: ())
    assert look(watcher) == {0}


def test_a_task_that_ends_after_a_rank_has_answered_may_have_sent(ranks, monkeypatch):
    """Its reply is here, and the rank's answer is older than what it did."""
    ranks.update({0: receives(0), 1: Sample(1, "idle", True, groups=WORLD)})
    watcher = watch({0: ranks[0]})
    watcher.cluster.busy_ranks = lambda: [0]
    under_way = [True]
    monkeypatch.setattr(
        watchdog, "doubts_outside", lambda *about: ("a task",) if under_way[0] else ()
    )

    def ask(cluster, asked):
        answers = {r: ranks[r] for r in asked}
        under_way[0] = False
        return answers

    monkeypatch.setattr(control, "sample", ask)
    situation = watcher._sample([0, 1], frozenset({1}))
    assert situation.outside == ("a task",)
    assert judge(situation).proved == frozenset()


THREAD = Issuer("a thread of rank {rank} is alive: Thread-1 (tick)")


def test_a_suspicion_lasts_while_a_byte_moves_by_chance(ranks):
    """A receive from any rank ends only if nothing is on its way: that may move for a look."""
    group = {KEY: Group(KEY, 0, {}, {("recv_any", -1, 0): 1}, 0)}
    wait = Wait("recv", ((KEY, 1),), peer=1)
    own = Sample(0, "waiting", True, wait, (7,), group)
    sent = {KEY: Group(KEY, 0, {}, {("send", 0, 0): 1}, 0)}
    other = dataclasses.replace(receives(1, THREAD), groups=sent)
    ranks.update({0: own, 1: other})
    watcher = watch(ranks)
    look(watcher)
    assert watcher.suspicion is not None
    ranks[0] = dataclasses.replace(own, still=False)
    look(watcher)
    assert watcher.suspicion is not None


def test_a_suspicion_ends_at_once_when_somebody_can_go_on(ranks):
    ranks.update({rank: receives(rank, THREAD) for rank in range(2)})
    watcher = watch(ranks)
    look(watcher)
    assert watcher.suspicion is not None
    ranks[1] = receives(1, dataclasses.replace(THREAD, ends=True))
    look(watcher)
    assert watcher.suspicion is None


# -- when it looks --------------------------------------------------------------------------------


class Looks:
    """Follow two ranks for some time; at which times they were sampled."""

    def __init__(self, monkeypatch, waiting):
        self.watcher = watch(waiting)
        self.clock: Any = self.watcher.clock
        self.at: list[float] = []
        answer = control.sample

        def sample(cluster, asked):
            self.at.append(self.clock.time)
            return answer(cluster, asked)

        monkeypatch.setattr(control, "sample", sample)

    def go_on(self, seconds):
        """Look for some seconds; return whether a deadlock was declared."""
        end, never = self.clock.time + seconds, concurrent.futures.Future[Any]()
        while self.clock.time < end:
            if self.watcher.poll([never], {}, times.TICK) is not None:
                return True
        return False

    def pauses(self):
        return [after - before for before, after in itertools.pairwise(self.at)]


def test_a_deadlock_is_declared_when_a_second_look_agrees(ranks, monkeypatch, factor):
    ranks.update({rank: receives(rank) for rank in range(2)})
    looks = Looks(monkeypatch, ranks)
    assert looks.go_on(60)
    # Those that wait, then everybody, and after a while once more.
    assert looks.pauses() == pytest.approx([0, 0.15 * factor], abs=1e-6)


def test_it_looks_on_while_another_rank_may_turn_out_to_wait_but_not_for_ever(
    ranks, monkeypatch, factor
):
    """Rank 0 waits for itself to send; rank 1 is neither seen to run nor to stand still."""
    wait = Wait("thread", (), peer=-1)
    own = Sample(0, "waiting", True, wait, (7,), WORLD)
    unclear = Sample(1, "computing", False, None, (), WORLD)
    ranks.update({0: own, 1: unclear})
    looks = Looks(monkeypatch, {0: own})
    looks.go_on(times.TICK / 2)
    later = looks.pauses()[1:]
    assert later == pytest.approx([0.15 * factor] * CONFIRM_TIMES, abs=1e-6)


def test_without_news_it_looks_less_and_less_often(ranks, monkeypatch, factor):
    ranks.update({0: receives(0), 1: Sample(1, "computing", stamp=(9,), groups=WORLD)})
    looks = Looks(monkeypatch, {0: ranks[0]})
    looks.go_on(30)
    within = [(p, p + times.TICK + 1e-6) for p in (0.3, 0.6, 1.2, 2.4, 4.8, 5, 5)]
    assert [low <= p <= high for (low, high), p in zip(within, looks.pauses(), strict=False)] == [
        True
    ] * len(within)


def test_news_are_looked_at_immediately(ranks, monkeypatch):
    ranks.update({0: receives(0), 1: Sample(1, "computing", stamp=(9,), groups=WORLD)})
    looks = Looks(monkeypatch, {0: ranks[0]})
    looks.go_on(20)
    before = len(looks.at)
    looks.watcher._note({1: receives(1)})
    looks.watcher.poll([concurrent.futures.Future[Any]()], {}, times.TICK)
    assert len(looks.at) > before


def test_what_is_suspected_is_looked_at_every_second(ranks, monkeypatch):
    ranks.update({rank: receives(rank, THREAD) for rank in range(2)})
    looks = Looks(monkeypatch, ranks)
    looks.go_on(20)
    assert looks.watcher.suspicion is not None
    assert looks.watcher.suspicion.seconds() == pytest.approx(20, abs=0.5)
    assert max(looks.pauses()) <= times.LOOK_AGAIN_SUSPECTED + times.TICK


def test_a_suspicion_is_old_when_it_was_judged_once_more_after_its_time(ranks, monkeypatch, factor):
    """On a busy machine as well: the limit is the user's."""
    ranks.update({rank: receives(rank, THREAD) for rank in range(2)})
    looks = Looks(monkeypatch, ranks)
    looks.go_on(times.TICK / 2)
    watcher = looks.watcher
    assert watcher.suspicion is not None
    looks.clock.sleep(5)
    assert not watcher.outlasts(None)
    assert not watcher.outlasts(60)
    assert not watcher.outlasts(5)
    before = len(looks.at)
    watcher.poll([], {}, 0.0)
    assert len(looks.at) > before
    assert watcher.outlasts(5)
    ranks[1] = dataclasses.replace(ranks[1], stamp=(99,), state="computing", wait=None)
    watcher.poll([], {}, times.LOOK_AGAIN_SUSPECTED)
    watcher._due = 0.0
    watcher.poll([], {}, 0.0)
    assert not watcher.outlasts(5)


class FakeWatcher:
    """Find and suspect nothing."""

    suspicion = None

    def __init__(self, cluster, ranks):
        self.clock = cluster.clock

    def poll(self, replies, failures, seconds):
        self.clock.sleep(seconds)


def test_a_deadlock_is_looked_for_for_a_bounded_time(monkeypatch, factor):
    cluster = SimpleNamespace(clock=VirtualClock(), asked={0, 1})

    def state(what):
        return RankState(0, "host", 70, "cpu", "gloo", what)

    monkeypatch.setattr(watchdog, "Watcher", FakeWatcher)
    assert watchdog.find_fault(cluster, [state("running")]) == []
    assert cluster.clock.time == 0
    assert watchdog.find_fault(cluster, [state("waiting")]) == []
    assert cluster.clock.time == pytest.approx(1.0 * factor, abs=2 * times.FAULT_TICK)


def client(*, tasks=()):
    """Return an ipyparallel client with one message out to engine 0, and with some tasks."""
    return SimpleNamespace(
        _outstanding_dict={"uuid-0": {"message"}}, outstanding={"message", *tasks}
    )


@pytest.fixture
def thread():
    """Start a thread of the notebook's user that waits for the end of the test."""
    end = threading.Event()
    started = threading.Thread(target=lambda: end.wait(), name="sender", daemon=True)
    started.start()
    yield
    end.set()
    started.join()


def own(doubts):
    """Leave out what pytest itself may have running."""
    return [doubt for doubt in doubts if "sender" in doubt or "lab.client" in doubt]


@pytest.mark.usefixtures("thread")
def test_a_thread_of_the_notebook_may_send_something():
    (doubt,) = own(watchdog.doubts_outside(client()))
    assert doubt == watchdog.THREAD.format("sender")


def test_the_thread_that_asks_is_not_doubted():
    """A cell may be followed in a thread: that one is busy following."""
    with ThreadPoolExecutor(1, thread_name_prefix="sender") as pool:
        assert own(pool.submit(watchdog.doubts_outside, client()).result()) == []


def test_a_task_of_a_balanced_view_may_go_to_any_rank():
    assert own(watchdog.doubts_outside(client(tasks=["task"]))) == [watchdog.TASK]
    assert own(watchdog.doubts_outside(client())) == []
    # Of a client that hides what is out nothing would ever be proved otherwise.
    assert own(watchdog.doubts_outside(SimpleNamespace(outstanding={"task"}))) == []
