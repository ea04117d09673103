"""Whom the notebook waits for when it has freed ranks that waited for one another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from labkit import times
from labkit.runtime import recovery


class Ranks:
    """Two ranks of this host that are busy: one comes back, the other when it is freed again."""

    def __init__(self, *, stopped: bool) -> None:
        self.stopped, self.freed = stopped, 0
        self.cluster: Any = SimpleNamespace(
            local_process=lambda rank: object(), is_stopped=lambda rank: rank == 1 and stopped
        )

    def free(self, cluster: object, ranks: list[int]) -> list[int]:
        """Free: rank 1 does not answer in time, first."""
        self.freed += 1
        return [0] if self.freed == 1 else list(ranks)

    def busy(self) -> list[int]:
        return [] if self.freed > 1 else [1]


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(ranks: Ranks, **named: Any) -> list[int]:
        monkeypatch.setattr(recovery, "free", ranks.free)
        monkeypatch.setattr(recovery, "send_signal", lambda *_: None)
        return recovery.end(ranks.cluster, ranks.busy, [0, 1], **named)

    for name in ("FREED", "STOPPED", "STUCK", "FREED_AGAIN"):
        monkeypatch.setattr(times, name, times.Bound(0.05))
    return run


def test_a_rank_that_answers_late_was_seen_to_wait_and_comes_back(end: Any) -> None:
    """It may be importing a library, or have many beside it."""
    ranks = Ranks(stopped=False)
    assert end(ranks) == []
    assert ranks.freed == 2


def test_a_rank_whose_process_is_stopped_holds_nobody(end: Any) -> None:
    ranks = Ranks(stopped=True)
    assert end(ranks) == [1]
    assert ranks.freed == 1


def test_after_the_stop_button_one_that_does_not_answer_holds_nobody(end: Any) -> None:
    ranks = Ranks(stopped=False)
    assert end(ranks, seen=False) == [1]
    assert ranks.freed == 1
