"""Two threads share the record: the main one adds to it while the other one looks."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

import pytest
import torch

from labkit.rank.observe import p2p_record, sampler


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


@pytest.mark.parametrize(
    ("backend", "ends"),
    [("gloo", {("send", 1, 5): 1, ("send", 1, 7): 1}), ("nccl", {("send", 1, -1): 2})],
)
def test_nccl_pairs_messages_by_their_order_alone(
    monkeypatch: pytest.MonkeyPatch, backend: str, ends: dict[tuple[str, int, int], int]
) -> None:
    class Group:
        group_name = "0"

        def rank(self) -> int:
            return 0

        def size(self) -> int:
            return 2

    group: Any = Group()
    monkeypatch.setattr(p2p_record, "posted", {})
    monkeypatch.setattr(p2p_record.groups, "backends", lambda group: (backend,))
    monkeypatch.setattr(p2p_record.call_details, "note_message", lambda *args: None)
    monkeypatch.setattr(p2p_record.ended, "check", lambda group: None)
    under_way: list[Any] = []

    def posts(group: Any, tensors: Any, peer: int, tag: int) -> None:
        frames = {0: sys._getframe(1)}
        monkeypatch.setattr(p2p_record.sys, "_current_frames", lambda: frames)
        under_way.extend(p2p_record.being_posted(group))

    monkeypatch.setattr(p2p_record, "original", {"send": posts})
    for tag in (5, 7):
        p2p_record.send(group, [torch.ones(1)], 1, tag)
    assert p2p_record.posted[group] == ends
    assert {*under_way} == {*ends}  # also while the call holds them


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
