"""When the round trip of an idle rank is measured, and what of it counts."""

from __future__ import annotations

import concurrent.futures
from types import SimpleNamespace
from typing import Any

import pytest

from labkit import times
from labkit.errors import LabStopped
from labkit.runtime import control
from labkit.runtime.control import measure_pace as measure
from labkit.wire.requests import AskBusy, Busy
from tests.support.virtual_clock import VirtualClock


class Ranks:
    """Ranks that were asked whether they are busy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = VirtualClock()
        self.measure_after = 0.0
        self.deaths: dict[int, int] = {}
        self.asked: list[tuple[int, Any]] = []  #: ranks and the futures of their answers
        self.computed = 0.0  #: seconds of processor time of this process
        monkeypatch.setattr(control, "post", self._post)
        monkeypatch.setattr(control.time, "process_time", lambda: self.computed)
        monkeypatch.setattr(times, "pace", times.Pace())

    def _post(self, cluster: object, rank: int, question: object) -> Any:
        assert isinstance(question, AskBusy)
        future: Any = concurrent.futures.Future()
        self.asked.append((rank, future))
        return SimpleNamespace(future=future, answer=future.result)

    def answer(self, seconds: float, value: Any) -> None:
        """Let the rank that was asked last answer after some seconds."""
        self.clock.sleep(seconds)
        self.asked[-1][1].set_result(value)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Any:
    return Ranks(monkeypatch)


def test_the_answer_of_an_idle_rank_is_the_unit_and_nobody_waits_for_it(ranks: Any) -> None:
    measure(ranks, [1, 2])
    assert ranks.clock.time == 0
    assert [rank for rank, _ in ranks.asked] == [1]
    ranks.answer(4 * times.Pace.REFERENCE, Busy(busy=False))
    assert times.pace.factor == pytest.approx(4)


def test_a_rank_that_has_begun_something_does_not_count(ranks: Any) -> None:
    measure(ranks, [1])
    ranks.answer(10.0, Busy(busy=True))
    assert times.pace.factor == 1


def test_what_this_process_has_computed_meanwhile_does_not_count(ranks: Any) -> None:
    measure(ranks, [1])
    ranks.computed += 10.0
    ranks.answer(10.0 + 2 * times.Pace.REFERENCE, Busy(busy=False))
    assert times.pace.factor == pytest.approx(2)


def test_no_answer_and_one_that_is_not_understood_do_not_count(ranks: Any) -> None:
    measure(ranks, [1])
    ranks.clock.sleep(100)
    ranks.asked[-1][1].set_exception(LabStopped("it has ended"))
    assert times.pace.factor == 1


def test_it_is_measured_once_a_second_at_most(ranks: Any) -> None:
    for _ in range(300):
        measure(ranks, [0])
        ranks.clock.sleep(0.01)
    assert len(ranks.asked) == 3


def test_nobody_is_asked_where_nobody_is_there(ranks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks.deaths = {1: -9}
    measure(ranks, [1])
    assert ranks.asked == []
    ranks.clock.sleep(2)
    monkeypatch.setattr(control, "post", lambda *_: None)  # ipyparallel hides the channel
    measure(ranks, [0])
    ranks.clock.sleep(2)

    def ended(*_: object) -> None:
        raise LabStopped("The controller has ended.")

    monkeypatch.setattr(control, "post", ended)
    measure(ranks, [0])
    assert times.pace.factor == 1
