"""What a rank says of its cell's collectives: their numbers, and those that torch issued in C++."""

from __future__ import annotations

from types import SimpleNamespace
from weakref import WeakKeyDictionary

import pytest
import torch

from labkit.rank.observe import (
    cell_calls,
    collective_notes,
    flight_recorder,
    p2p_record,
)
from labkit.rank.torch_internals import groups, names
from labkit.rank.torch_internals.recorder import Issued
from labkit.wire.samples import UNKNOWN, UNSEEN


class Group:
    """A process group of two."""

    group_name = "0"

    def size(self):
        return 2


@pytest.fixture
def rank(monkeypatch):
    """A rank in one group: what its backends have counted, and what the recorder has."""
    state = SimpleNamespace(
        group=Group(), counted={"gloo": 10}, recorded=[], read=0, backends=("gloo",)
    )

    def entries():
        state.read += 1
        return state.recorded

    for name in ("noted", "others"):
        monkeypatch.setattr(collective_notes, name, WeakKeyDictionary())
    monkeypatch.setattr(cell_calls, "_began", WeakKeyDictionary())
    monkeypatch.setattr(p2p_record, "barriers", WeakKeyDictionary())
    monkeypatch.setattr(names, "is_on", lambda feature: True)
    monkeypatch.setattr(groups, "groups", lambda: [state.group])
    monkeypatch.setattr(groups, "members", lambda: {state.group: {0: 0, 1: 1}})
    monkeypatch.setattr(groups, "backends", lambda group: state.backends)
    monkeypatch.setattr(groups, "issued_by", lambda group, backend: state.counted[backend])
    monkeypatch.setattr(flight_recorder, "entries", entries)
    monkeypatch.setattr(cell_calls.dist, "get_rank", lambda: 1)
    return state


def call(rank, line, *, backend="gloo", method="allreduce"):
    """Issue a collective on a line of the cell."""
    rank.counted[backend] += 1
    x = torch.zeros(2)
    args = ([x],) if method == "allreduce" else ([x], [[x, x]])
    number = rank.counted[backend]
    collective_notes.note(rank.group, method, args, backend, number, (-1, ("In[7]", line), True))


def send(rank):
    rank.counted["gloo"] += 1
    collective_notes.note_others(rank.group, "gloo")


def collected(rank, key="0"):
    """Return the last number, and the line of each; -1 is unseen, "" was seen by torch alone."""
    calls = cell_calls.collectives_of_cell().groups[key, (0, 1)]
    lines = [UNSEEN if n == UNSEEN else calls.kinds[n].where for n in calls.numbers]
    return calls.last, lines, calls.whole


def test_a_cell_without_collectives_says_nothing(rank):
    cell_calls._begin_collectives()
    assert cell_calls.collectives_of_cell() is None
    send(rank)
    assert cell_calls.collectives_of_cell() is None
    assert rank.read == 0


def test_numbers_leave_messages_out(rank):
    send(rank)
    cell_calls._begin_collectives()
    call(rank, 2)
    send(rank)
    call(rank, 3)
    assert collected(rank) == (12, ["In[7], line 2", "In[7], line 3"], True)
    assert rank.read == 0  # which takes a millisecond
    cell_calls._begin_collectives()
    assert cell_calls.collectives_of_cell() is None


def test_what_torch_issued_itself_is_looked_up(rank):
    cell_calls._begin_collectives()
    call(rank, 2)
    rank.counted["gloo"] += 3
    rank.recorded = [
        Issued("0", 12, 12, "gloo:all_reduce", 0, True, types=["Float", "Float"]),
        Issued("0", 13, 13, "gloo:_allgather_base", 0, True, types=["Half"]),
        Issued("1", 14, 14, "gloo:all_reduce", 0, True),
    ]
    assert collected(rank) == (14, ["In[7], line 2", "", "", UNSEEN], True)
    seen = cell_calls.collectives_of_cell().groups["0", (0, 1)].kinds[1:]
    assert [(k.name, k.types, k.order, k.direct) for k in seen] == [
        ("all_reduce", ("float32",), UNKNOWN, False),
        ("all_gather", ("float16",), UNKNOWN, False),
    ]


def test_the_newest_are_told(rank):
    cell_calls._begin_collectives()
    for _ in range(collective_notes.KEPT + 5):
        call(rank, 2)
    last, lines, whole = collected(rank)
    assert (last, len(lines), whole) == (10 + len(lines) + 5, collective_notes.KEPT, False)
    assert rank.read == 0


def test_a_call_that_takes_several_numbers(rank):
    cell_calls._begin_collectives()
    rank.counted["gloo"] += 1
    call(rank, 2, method="reduce_scatter")
    assert collected(rank) == (12, ["In[7], line 2"] * 2, True)


def test_after_a_monitored_barrier_the_recorder_is_not_asked(rank):
    p2p_record.barriers[rank.group] = 1
    cell_calls._begin_collectives()
    call(rank, 2)
    rank.counted["gloo"] += 1
    assert collected(rank) == (12, ["In[7], line 2", UNSEEN], True)
    assert rank.read == 0


def test_each_backend_of_a_group_has_its_numbers(rank):
    rank.backends, rank.counted = ("nccl", "gloo"), {"nccl": 3, "gloo": 7}
    send(rank)
    cell_calls._begin_collectives()
    call(rank, 2, backend="nccl")
    send(rank)
    assert set(cell_calls.collectives_of_cell().groups) == {("0", (0, 1))}
    call(rank, 3)
    assert collected(rank) == (4, ["In[7], line 2"], True)
    assert collected(rank, "0 (gloo)") == (8, ["In[7], line 3"], True)
