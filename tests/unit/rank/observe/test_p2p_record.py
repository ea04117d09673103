"""Two threads share the record: the main one adds to it while the other one looks."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import pytest

from labkit.rank.observe import flight_recorder, p2p_record, sampler


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p2p_record, "places", deque([("file", 1, "0")] * 3, maxlen=64))
    monkeypatch.setattr(p2p_record, "futures", [])


@pytest.mark.usefixtures("fresh")
def test_a_call_that_comes_during_a_look_disturbs_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(file: str, line: int) -> tuple[str, str]:
        p2p_record.places.append((file, line + 1, "0"))  # as the main thread does in between
        return f"{file}:{line}", ""

    monkeypatch.setattr(sampler.tracebacks, "describe", describe)
    assert sampler._places() == {("file:1", "0")}
    assert sampler._places() == {("file:1", "0"), ("file:2", "0")}


def test_a_message_that_is_posted_during_a_look_disturbs_no_look() -> None:
    posted: Counter[tuple[str, int, int]] = Counter()

    class Count(int):
        def __radd__(self, other: int) -> int:
            posted["send", 1, len(posted)] += 1
            return int(self) + other

    posted["send", 1, 0] = Count(2)
    assert flight_recorder._ends(posted) == {("send", 1): 2}
    assert len(posted) == 2


class Future:
    def __init__(self, done: bool, meanwhile: Any = None) -> None:
        self._done, self._meanwhile = done, meanwhile

    def done(self) -> bool:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self._done


@pytest.mark.usefixtures("fresh")
def test_a_future_that_is_asked_for_while_others_are_forgotten_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits for one may issue calls: a lost one would be a proof that is none."""
    late, kept = (Future(False), "0", 9), (Future(False), "0", 1)

    class Shared(list[Any]):
        def __iter__(self) -> Any:
            yield from super().__iter__()
            self.append(late)  # as the main thread does when all have been gone through

    monkeypatch.setattr(p2p_record, "futures", Shared([kept, (Future(True), "0", 2)]))
    p2p_record.forget_futures()
    assert list.__eq__(p2p_record.futures, [kept, late])


@pytest.mark.usefixtures("fresh")
def test_two_threads_may_forget_the_same_future() -> None:
    p2p_record.futures[:] = [(Future(True, p2p_record.forget_futures), "0", 1)]
    p2p_record.forget_futures()
    assert p2p_record.futures == []
