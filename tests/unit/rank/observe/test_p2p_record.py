"""Sends, receives and monitored barriers are counted beside what torch does, and two threads share
the record: the main one adds to it while the other one looks."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter, deque
from datetime import timedelta
from typing import Any

import pytest
import torch

from labkit.rank.observe import p2p_record, sampler
from labkit.rank.observe.p2p_record import Message

#: What a message carries.
TENSORS = [torch.ones(2)]


class Group:
    group_name = "5"

    @staticmethod
    def rank():
        return 2

    @staticmethod
    def size():
        return 10


class Work:
    pass


@pytest.fixture
def original(monkeypatch):
    """Put a list of calls in the place of torch's own methods; each returns a new Work."""
    calls = []

    def method(name):
        def call(*args, **named):
            calls.append((name, args, named))
            return Work()

        return call

    for name in ("_set_group_name", "send", "recv", "recv_anysource", "monitored_barrier", "wait"):
        monkeypatch.setitem(p2p_record.original, name, method(name))
    return calls


each_kind = pytest.mark.parametrize(
    ("function", "arguments", "kind", "peer"),
    [
        (p2p_record.send, (TENSORS, 1, 7), "send", 1),
        (p2p_record.recv, (TENSORS, 1, 7), "recv", 1),
        (p2p_record.recv_anysource, (TENSORS, 7), "recv_any", -1),
    ],
)


@each_kind
def test_a_message_is_passed_on_and_numbered(original, function, arguments, kind, peer):
    group = Group()
    works = [function(group, *arguments) for _ in range(3)]
    assert original == [(function.__name__, (group, *arguments), {})] * 3
    original.clear()
    numbers = [p2p_record.messages[w] for w in works]
    assert numbers == [Message("5", kind, peer, 7, n, 2) for n in (1, 2, 3)]
    p2p_record.send(group, TENSORS, 4, 0)
    assert p2p_record.posted[group] == Counter({(kind, peer, 7): 3, ("send", 4, 0): 1})
    known = len(p2p_record.messages)
    works.clear()
    gc.collect()
    assert len(p2p_record.messages) == known - 3  # forgotten with its Work


@each_kind
def test_a_message_without_a_work_is_counted(monkeypatch, function, arguments, kind, peer):
    """In a batch NCCL gives one Work for all messages, at its end."""
    monkeypatch.setitem(p2p_record.original, function.__name__, lambda *args: None)
    notes = p2p_record.Notes(thread=0)
    monkeypatch.setattr(p2p_record, "notes", notes)
    group, known = Group(), dict(p2p_record.messages)
    assert [function(group, *arguments) for _ in range(2)] == [None, None]
    assert p2p_record.posted[group] == Counter({(kind, peer, 7): 2})
    assert [message.number for _, message in notes.messages] == [1, 2]
    assert dict(p2p_record.messages) == known


def test_a_message_that_torch_refuses_is_not_counted(monkeypatch):
    def refuse(*args):
        raise ValueError("no such peer")

    monkeypatch.setitem(p2p_record.original, "send", refuse)
    group = Group()
    with pytest.raises(ValueError, match="no such peer"):
        p2p_record.send(group, TENSORS, 9, 0)
    assert group not in p2p_record.posted


@pytest.mark.parametrize("function", [p2p_record.send, p2p_record.recv])
@pytest.mark.parametrize("peer", [-1, 10])
def test_a_peer_that_is_not_there_is_refused_before_torch_hangs_on_it(original, function, peer):
    with pytest.raises(ValueError, match=f"no rank {peer} in this group: .* from 0 to 9"):
        function(Group(), TENSORS, peer, 0)
    assert original == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((), {}), ((timedelta(seconds=3),), {}), ((), {"timeout": timedelta(seconds=3)})],
)
def test_a_wait_is_passed_on_as_it_came(original, arguments, named):
    work = Work()
    assert isinstance(p2p_record.wait(work, *arguments, **named), Work)
    assert original == [("wait", (work, *arguments), named)]


def test_the_place_of_a_wait_is_the_innermost_line_of_a_cell_and_its_group(original):
    code = "#px In[3]\ndef f():\n    return wait(work)\nf()\n"
    work = Work()
    p2p_record.homes[work] = "a group"
    exec(compile(code, "In[3]", "exec"), {"wait": p2p_record.wait, "work": work})
    assert p2p_record.places[-1] == ("In[3]", 3, "a group")


def test_only_the_last_places_are_kept(original):
    code = "for _ in range(100):\n    wait(work)\n"
    exec(compile(code, "In[4]", "exec"), {"wait": p2p_record.wait, "work": Work()})
    assert list(p2p_record.places) == [("In[4]", 2, "")] * p2p_record.places.maxlen


def test_a_monitored_barrier_is_counted_before_it_blocks(monkeypatch):
    group, inside = Group(), []
    monkeypatch.setitem(
        p2p_record.original,
        "monitored_barrier",
        lambda self, **named: inside.append((p2p_record.barriers[self], named)),
    )
    p2p_record.monitored_barrier(group)
    p2p_record.monitored_barrier(group, timedelta(seconds=3), wait_all_ranks=True)
    assert inside == [
        (1, {"wait_all_ranks": False}),
        (2, {"timeout": timedelta(seconds=3), "wait_all_ranks": True}),
    ]


def test_a_group_that_is_named_is_born(original):
    group = Group()
    p2p_record._set_group_name(group, "5")
    assert p2p_record.born[group] > 0
    assert original == [("_set_group_name", (group, "5"), {})]


@pytest.mark.parametrize("given", ["2000", None])
def test_the_recorders_size_is_the_learners_if_there_is_one(monkeypatch, original, given):
    # Set, even to be deleted: else it is not noted, and what install() sets stays for all the labs
    # of later tests, which then start without the zygote.
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", given or "")
    if not given:
        monkeypatch.delenv("TORCH_FR_BUFFER_SIZE")
    before = dict(p2p_record.original)
    p2p_record.install()
    assert p2p_record.original == before  # what is replaced is not replaced again
    assert os.environ["TORCH_FR_BUFFER_SIZE"] == (given or p2p_record.RECORDER_SIZE)


# -- two threads ------------------------------------------------------------------------------


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
