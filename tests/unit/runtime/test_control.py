"""What the notebook asks ranks on the control channel, and makes of their answers."""

from __future__ import annotations

import concurrent.futures
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.base import times
from labkit.base.errors import LabError, LabStopped
from labkit.runtime import control
from labkit.runtime.control import measure_pace as measure
from labkit.runtime.control import survey
from labkit.wire.requests import REFUSED, AskBusy, AskSample, Busy, Count, Shut
from labkit.wire.samples import Sample, Wait
from labkit.wire.state import RankState
from tests.support.virtual_clock import VirtualClock


class Cluster:
    """Two ranks, of which rank 1 answers with ``content``; rank 0 gives no answer."""

    def __init__(self, content):
        self.places = [SimpleNamespace(engine=10), SimpleNamespace(engine=11)]
        self.deaths: dict[int, str] = {}
        self.client = self
        self.ids = [10, 11]
        self.sent: list[tuple[str, object]] = []
        self.content = content
        self._control_stream = "stream"
        self.clock = VirtualClock()

    def _build_targets(self, engine):
        return [engine], None

    def _send(self, stream, name, content, ident):
        assert stream == "stream"
        self.sent.append((name, content))
        return SimpleNamespace(
            wait=lambda seconds: ident == 11, result=lambda: {"content": self.content}
        )


def test_an_answer_is_of_its_type_and_who_gives_none_is_left_out():
    cluster = Cluster({"count": 3})
    pair = [["127.0.0.1", 1], ["127.0.0.1", 2]]
    assert control.ask(cluster, dict.fromkeys((0, 1), Shut((pair,)))) == {1: Count(3)}
    assert cluster.sent == [("labkit_shut", {"pairs": [pair]})] * 2


@pytest.mark.parametrize("within", [times.ANSWER, times.QUICK_ANSWER])
def test_an_answer_is_waited_for_longer_on_a_busy_machine(monkeypatch, within, factor):
    cluster = Cluster({"count": 3})
    assert control.ask(cluster, dict.fromkeys((0, 1), Shut(())), within) == {1: Count(3)}
    assert cluster.clock.time == pytest.approx(within.least * factor)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"counts": 3}, "Count: Object missing required field `count`"),
        ({"count": "3"}, "Count: Expected `int`, got `str` - at `$.count`"),
        ({REFUSED: "Shut has an unknown x"}, "Shut has an unknown x"),
    ],
)
def test_an_answer_that_is_not_understood_is_an_error_that_says_so(content, says):
    cluster = Cluster(content)
    with pytest.raises(LabError) as caught:
        control.ask(cluster, {1: Shut(())})
    assert str(caught.value) == (
        f"rank 1 and the notebook do not understand each other in labkit_shut: {says}. "
        "Both need the same version of labkit."
    )


def test_the_dead_and_those_that_have_left_are_not_asked():
    cluster = Cluster({})
    cluster.deaths[1] = "signal 9 (SIGKILL)"
    cluster.ids.remove(10)
    assert control.ask(cluster, dict.fromkeys((0, 1), AskSample())) == {}
    assert cluster.sent == []


def state(rank, what):
    return RankState(rank, "host", 70 + rank, "cpu", "gloo", what)


@pytest.fixture
def two():
    places = [SimpleNamespace(**vars(state(r, ""))) for r in range(2)]
    return SimpleNamespace(clock=VirtualClock(), asked={0, 1}, places=places, deaths={})


def test_a_rank_waits_if_it_stands_still_between_two_looks(two, monkeypatch, factor):
    sampled: list[tuple[float, list[int]]] = []

    def sample(cluster, ranks):
        sampled.append((cluster.clock.time, ranks))
        return {1: Sample(1, "waiting", True, Wait("recv", (), peer=0))}

    monkeypatch.setattr(control, "list_states", lambda c: [state(0, "idle"), state(1, "running")])
    monkeypatch.setattr(control, "sample", sample)
    assert [s.state for s in survey(two)] == ["idle", "waiting"]
    assert sampled == [(0, [1]), (pytest.approx(0.25 * factor), [1])]


def test_idle_ranks_are_looked_at_once(two, monkeypatch):
    monkeypatch.setattr(control, "list_states", lambda c: [state(0, "idle"), state(1, "idle")])
    survey(two)
    assert two.clock.time == 0


class AskedRanks:
    """Ranks that were asked whether they are busy."""

    def __init__(self, monkeypatch):
        self.clock = VirtualClock()
        self.measure_after = 0.0
        self.deaths: dict[int, int] = {}
        self.asked: list[tuple[int, Any]] = []  #: ranks and the futures of their answers
        self.computed = 0.0  #: seconds of processor time of this process
        monkeypatch.setattr(control, "post", self._post)
        monkeypatch.setattr(control.time, "process_time", lambda: self.computed)
        monkeypatch.setattr(times, "pace", times.Pace())

    def _post(self, cluster, rank, question):
        assert isinstance(question, AskBusy)
        future = concurrent.futures.Future()
        self.asked.append((rank, future))
        return SimpleNamespace(future=future, answer=future.result)

    def answer(self, seconds, value):
        """Let the rank that was asked last answer after some seconds."""
        self.clock.sleep(seconds)
        self.asked[-1][1].set_result(value)


@pytest.fixture
def ranks(monkeypatch):
    return AskedRanks(monkeypatch)


def test_the_answer_of_an_idle_rank_is_the_unit_and_nobody_waits_for_it(ranks):
    measure(ranks, [1, 2])
    assert ranks.clock.time == 0
    assert [rank for rank, _ in ranks.asked] == [1]
    ranks.answer(4 * times.Pace.REFERENCE, Busy(busy=False))
    assert times.pace.factor == pytest.approx(4)


def test_a_rank_that_has_begun_something_does_not_count(ranks):
    measure(ranks, [1])
    ranks.answer(10.0, Busy(busy=True))
    assert times.pace.factor == 1


def test_what_this_process_has_computed_meanwhile_does_not_count(ranks):
    measure(ranks, [1])
    ranks.computed += 10.0
    ranks.answer(10.0 + 2 * times.Pace.REFERENCE, Busy(busy=False))
    assert times.pace.factor == pytest.approx(2)


def test_no_answer_and_one_that_is_not_understood_do_not_count(ranks):
    measure(ranks, [1])
    ranks.clock.sleep(100)
    ranks.asked[-1][1].set_exception(LabStopped("it has ended"))
    assert times.pace.factor == 1


def test_it_is_measured_once_a_second_at_most(ranks):
    for _ in range(300):
        measure(ranks, [0])
        ranks.clock.sleep(0.01)
    assert len(ranks.asked) == 3


def test_nobody_is_asked_where_nobody_is_there(ranks, monkeypatch):
    ranks.deaths = {1: -9}
    measure(ranks, [1])
    assert ranks.asked == []
    ranks.clock.sleep(2)
    monkeypatch.setattr(control, "post", lambda *_: None)  # ipyparallel hides the channel
    measure(ranks, [0])
    ranks.clock.sleep(2)

    def ended(*_):
        raise LabStopped("The controller has ended.")

    monkeypatch.setattr(control, "post", ended)
    measure(ranks, [0])
    assert times.pace.factor == 1
