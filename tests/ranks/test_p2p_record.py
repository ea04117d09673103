"""Counting sends, receives and monitored barriers, beside what torch does."""

from __future__ import annotations

import gc
import os
from collections import Counter
from datetime import timedelta

import pytest
import torch

from labkit.rank.observe import p2p_record
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


# -- collectives on real ranks ------------------------------------------------------------------


def homes_of_collectives():
    """Issue every form of every collective in a group of its own; return whose home is unknown."""
    import torch
    import torch.distributed as dist

    from labkit.rank.observe import p2p_record

    group = dist.new_group([0, 1, 2, 3])
    n, me = 4, dist.get_rank()
    x, wide = torch.ones(1), torch.ones(n)
    parts = [torch.ones(1) for _ in range(n)]
    first = parts if me == 0 else None
    options = {"group": group, "async_op": True}
    calls = {
        "all_reduce": lambda: dist.all_reduce(x, **options),
        "broadcast": lambda: dist.broadcast(x, 0, **options),
        "reduce": lambda: dist.reduce(x, 0, **options),
        "all_gather": lambda: dist.all_gather(parts, x, **options),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(wide, x, **options),
        "gather": lambda: dist.gather(x, first, 0, **options),
        "scatter": lambda: dist.scatter(x, first, 0, **options),
        "reduce_scatter": lambda: dist.reduce_scatter(x, parts, **options),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(x, wide, **options),
        "all_to_all_single": lambda: dist.all_to_all_single(wide, torch.ones(n), **options),
        "barrier": lambda: dist.barrier(**options),
    }
    unknown = []
    for name, call in calls.items():
        work = call()
        if p2p_record.homes.get(work) != group.group_name:
            unknown.append(name)
        work.wait()
    return unknown


def test_the_group_of_every_collective_is_known(lab4):
    assert lab4.run(homes_of_collectives) == [[]] * 4
