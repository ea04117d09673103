"""What the notebook makes of an answer on the control channel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from labkit import times
from labkit.errors import LabError
from labkit.runtime import control
from labkit.wire.requests import REFUSED, AskSample, Count, Shut
from tests.support.virtual_clock import VirtualClock


class Cluster:
    """Two ranks, of which rank 1 answers with ``content``; rank 0 gives no answer."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.places = [SimpleNamespace(engine=10), SimpleNamespace(engine=11)]
        self.deaths: dict[int, str] = {}
        self.client = self
        self.ids = [10, 11]
        self.sent: list[tuple[str, object]] = []
        self.content = content
        self._control_stream = "stream"
        self.clock = VirtualClock()

    def _build_targets(self, engine: int) -> tuple[list[int], None]:
        return [engine], None

    def _send(self, stream: str, name: str, content: object, ident: int) -> Any:
        assert stream == "stream"
        self.sent.append((name, content))
        return SimpleNamespace(
            wait=lambda seconds: ident == 11, result=lambda: {"content": self.content}
        )


def test_an_answer_is_of_its_type_and_who_gives_none_is_left_out() -> None:
    cluster: Any = Cluster({"count": 3})
    pair = [["127.0.0.1", 1], ["127.0.0.1", 2]]
    assert control.ask(cluster, dict.fromkeys((0, 1), Shut((pair,)))) == {1: Count(3)}
    assert cluster.sent == [("labkit_shut", {"pairs": [pair]})] * 2


@pytest.mark.parametrize("factor", [1.0, 20.0])
@pytest.mark.parametrize("within", [times.ANSWER, times.QUICK_ANSWER])
def test_an_answer_is_waited_for_longer_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, within: times.Bound, factor: float
) -> None:
    monkeypatch.setattr(times, "pace", SimpleNamespace(factor=factor))
    cluster: Any = Cluster({"count": 3})
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
def test_an_answer_that_is_not_understood_is_an_error_that_says_so(
    content: dict[str, Any], says: str
) -> None:
    cluster: Any = Cluster(content)
    with pytest.raises(LabError) as caught:
        control.ask(cluster, {1: Shut(())})
    assert str(caught.value) == (
        f"rank 1 and the notebook do not understand each other in labkit_shut: {says}. "
        "Both need the same version of labkit."
    )


def test_the_dead_and_those_that_have_left_are_not_asked() -> None:
    cluster: Any = Cluster({})
    cluster.deaths[1] = "signal 9 (SIGKILL)"
    cluster.ids.remove(10)
    assert control.ask(cluster, dict.fromkeys((0, 1), AskSample())) == {}
    assert cluster.sent == []
