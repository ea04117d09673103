"""What a cluster waits for: engines that connect and leave, replies, deaths, remote calls."""

from __future__ import annotations

import concurrent.futures
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.base import times
from labkit.base.errors import LabError, StartError
from labkit.launch import few_messages, ipyparallel_internals
from labkit.launch.placement import Place
from labkit.runtime.cluster import RankCluster
from labkit.wire import remote_calls
from tests.support.virtual_clock import VirtualClock


class Client:
    """An ``ipyparallel.Client`` without a controller."""

    def __init__(self):
        self.ids: list[int] = []
        self._engines: dict[int, str] = {}
        self._outstanding_dict: dict[str, set[object]] = {}
        self._notification_handlers: dict[str, Any] = {
            "registration_notification": lambda engine: self.ids.append(engine),
            "unregistration_notification": lambda engine: self.ids.remove(engine),
        }

    def create_message_futures(self):
        future = concurrent.futures.Future()
        future.iopub_callbacks = []
        return [future]

    def hears(self, kind, engine):
        self._notification_handlers[kind](engine)


class Launcher:
    """Starts nothing; says that a rank will not come if it was told to."""

    timeout = 60.0

    def __init__(self):
        self.why = ""
        self.on_exit: Any = None

    def start_failure(self, size):
        return self.why

    def controller_failure(self):
        return ""

    def no_restart_reason(self):
        return ""

    def delay(self):
        return "the job is pending"

    def log(self):
        return "."


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def launcher():
    return Launcher()


@pytest.fixture
def cluster(client, launcher):
    """Two ranks that nobody has started."""
    made = RankCluster(2, launcher, client)
    made.places = [Place(r, r, "host", 70 + r, r, 2, "cpu", "gloo", 1) for r in range(2)]
    return made


@pytest.fixture
def clock(cluster):
    cluster.clock = VirtualClock()
    return cluster.clock


# -- the start ------------------------------------------------------------------------------------


def test_ranks_are_waited_for_until_the_last_has_connected(cluster, client, clock):
    for number, seconds in enumerate((3.3, 7.7)):
        clock.at(seconds, lambda n=number: client.hears("registration_notification", n))
    cluster.wait_for_ranks(120)
    assert clock.time == 7.7


def test_a_rank_that_will_not_come_is_an_error(cluster, launcher, clock):
    clock.at(5, lambda: setattr(launcher, "why", "Rank 1 ended at start-up."))
    with pytest.raises(StartError, match=r"^Rank 1 ended at start-up\.$"):
        cluster.wait_for_ranks(120)
    assert clock.time == 5


def test_ranks_are_not_waited_for_for_ever(cluster, clock):
    with pytest.raises(StartError, match=r"^Only 0 of 2 .* 120 s: the job is pending\.$"):
        cluster.wait_for_ranks(cluster.start_seconds())
    assert clock.time == pytest.approx(times.START)


def test_a_users_setting_prolongs_the_start(cluster, launcher):
    launcher.timeout = 300.0
    assert cluster.start_seconds() == 300


def test_the_controller_is_asked_again_for_engines(cluster, clock, client, monkeypatch):
    """Its notice may have been missed."""
    asked: list[float] = []

    def ask(asking, then):
        asked.append(clock.time)
        if len(asked) == 3:
            asking.ids = [0, 1]
            then()

    monkeypatch.setattr(ipyparallel_internals, "ask_for_engines", ask)
    for tenth in range(1, 50):  # a wait looks so often
        clock.at(tenth / 10, lambda: None)
    cluster.wait_for_ranks(120)
    assert asked == pytest.approx([0.6, 1.2, 1.8], abs=0.11)


def test_fresh_ranks_are_waited_for_once_the_old_have_left(cluster, client, clock, monkeypatch):
    client.ids = [0, 1]
    cluster.replaced, cluster.places = cluster.places, []
    monkeypatch.setattr(cluster, "_map", lambda: None)
    for seconds, kind, engine in [
        (1, "unregistration_notification", 0),
        (2, "unregistration_notification", 1),
        (3, "registration_notification", 2),
        (4, "registration_notification", 3),
    ]:
        clock.at(seconds, lambda k=kind, e=engine: client.hears(k, e))
    cluster.arrive()
    assert clock.time == 4
    assert cluster.replaced == []


# -- news -----------------------------------------------------------------------------------------


@pytest.fixture
def waits(cluster, monkeypatch):
    """Wait until rank 1 has nothing to do, while another thread does something."""
    monkeypatch.setattr(times, "NOTICE", 60.0)  # a wait that misses the news would hang

    def run(happens):
        looked = threading.Event()

        def is_free():
            looked.set()
            return not cluster.is_busy(1)

        def go():
            looked.wait(60)
            happens()

        thread = threading.Thread(target=go, daemon=True)
        thread.start()
        found = cluster.clock.wait_for(is_free, 60)
        thread.join()
        return bool(found)

    return run


@pytest.fixture
def request_of_rank_1(client, cluster):
    (future,) = client.create_message_futures()
    client._engines = {0: "a", 1: "b"}
    client._outstanding_dict = {"b": {future}}
    return future


def test_a_reply_is_news(client, request_of_rank_1, waits):
    def reply():
        client._outstanding_dict["b"].clear()
        request_of_rank_1.set_result(None)

    assert waits(reply)


def test_a_death_is_news(launcher, request_of_rank_1, waits):
    assert waits(lambda: launcher.on_exit(71, -9))


def test_a_death_that_the_controller_tells_of_is_news(client, request_of_rank_1, waits):
    content = {"content": {"engine": 1, "code": -9}}
    assert waits(lambda: client._notification_handlers["labkit_exit"](content))


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [("registration_notification", [], [1]), ("unregistration_notification", [1], [])],
)
def test_engines_that_come_and_leave_are_news(
    client,
    cluster,
    monkeypatch,
    kind,
    before,
    after,
):
    monkeypatch.setattr(times, "NOTICE", 60.0)
    client.ids = before
    looked = threading.Event()

    def go():
        looked.wait(60)
        client.hears(kind, 1)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    assert cluster.clock.wait_for(lambda: looked.set() or client.ids == after, 60)
    thread.join()


# -- remote calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [False, True])
def test_a_rank_that_does_not_answer_a_call_is_an_error(
    cluster,
    clock,
    monkeypatch,
    stopped,
    factor,
):
    """Sooner where somebody has pressed stop, and on a busy machine later then."""
    monkeypatch.setattr("labkit.base.interrupts.has_come", lambda: stopped)
    answered = SimpleNamespace(msg_id="a", done=lambda: True, result=lambda: None)
    never = SimpleNamespace(msg_id="b", done=lambda: False)
    result = SimpleNamespace(_children=[answered, never])
    monkeypatch.setattr(few_messages, "apply", lambda *_: result)
    with pytest.raises(LabError, match=r"^rank 1 does not answer: it is busy or blocked; "):
        cluster.remote_call({0: remote_calls.leave(), 1: remote_calls.leave()})
    assert clock.time == pytest.approx(1.0 * factor if stopped else 30.0)
