"""What is noted of a collective's tensors: their order in memory, gaps, types and sizes."""

from __future__ import annotations

from types import SimpleNamespace
from weakref import WeakKeyDictionary

import pytest
import torch

from labkit.rank.observe import collective_notes
from labkit.rank.observe.collective_notes import has_gaps, order_of

WHOLE = torch.arange(24.0).reshape(2, 3, 4)
SUM = SimpleNamespace(reduceOp=SimpleNamespace(op=SimpleNamespace(name="SUM")))


class Group:
    """A process group of three."""

    def size(self):
        return 3


@pytest.fixture(autouse=True)
def empty(monkeypatch):
    for name in ("noted", "others"):
        monkeypatch.setattr(collective_notes, name, WeakKeyDictionary())


@pytest.mark.parametrize(
    ("tensor", "order", "gaps"),
    [
        (WHOLE, "", False),
        (WHOLE[1:], "", False),
        (WHOLE[:, :, :2], "", True),
        (WHOLE[:, ::2], "", True),
        (WHOLE.transpose(0, 2), "2,1,0", False),
        (WHOLE.permute(0, 2, 1), "0,2,1", False),
        (WHOLE[:, :1].transpose(0, 1), "", True),
        (torch.zeros(3, 1).t(), "", False),
        (torch.zeros(1).expand(3), "", True),
        (torch.zeros(2, 1).expand(2, 3), "", True),
        (torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last), "0,2,3,1", False),
        (torch.zeros(0, 3), "", False),
        (torch.tensor(1.0), "", False),
    ],
)
def test_how_a_tensor_lies(tensor: torch.Tensor, order: str, gaps: bool) -> None:
    assert order_of(tensor) == order
    assert has_gaps(tensor) == gaps or tensor.is_contiguous()


def noted(method, *args, backend="gloo"):
    """Return what is noted of one call, and its numbers."""
    group = Group()
    collective_notes.note(group, method, args, backend, 7, (-1, ("In[7]", 2), True))
    notes = collective_notes.noted[group][backend]
    assert len({note for *_, note in notes}) == 1
    return notes[0][2], [number for number, *_ in notes]


def test_a_call_of_a_loop_is_noted_alike():
    one, numbers = noted("allreduce", [torch.zeros(2)], SUM)
    assert numbers == [7]
    assert one == noted("allreduce", [torch.ones(5)], SUM)[0]
    assert (one.name, one.types, one.op) == ("all_reduce", (torch.float32,), "SUM")
    assert (one.place, one.direct, one.elements) == (("In[7]", 2), True, -1)


def test_sizes_are_noted_where_short_tensors_pass():
    x = torch.zeros(5)
    assert noted("broadcast", [x])[0].elements == 5
    assert noted("scatter", [x], [])[0].elements == 5
    assert noted("gather", [], [x])[0].elements == 5


def test_reduce_scatter_takes_a_number_for_each_rank():
    args = ([torch.zeros(2)], [[torch.zeros(2)] * 3])
    assert noted("reduce_scatter", *args)[1] == [5, 6, 7]
    assert noted("reduce_scatter", *args, backend="nccl")[1] == [7]
    several = [torch.zeros(2), torch.zeros(2)]
    assert noted("reduce_scatter_tensor_coalesced", several, several)[1] == [6, 7]


@pytest.mark.parametrize(
    ("method", "args", "order", "gaps"),
    [
        ("allreduce", ([WHOLE.transpose(0, 1)],), "1,0,2", False),
        ("broadcast", ([WHOLE[:, 0]],), "", True),
        ("allgather", ([[WHOLE]], [WHOLE[:, 0]]), "", False),
        ("scatter", ([torch.zeros(4, 3)], [[torch.zeros(3, 4).t()] * 3]), "", True),
        ("scatter", ([torch.zeros(3, 4).t()], [[torch.zeros(3, 4).t()] * 3]), "1,0", False),
        ("reduce_scatter", ([torch.zeros(2, 4)], [[WHOLE[:, 0]] * 3]), "", False),
        ("reduce_scatter", ([WHOLE[:, 0]], [[torch.zeros(2, 4)] * 3]), "", True),
        ("reduce_scatter_single", (torch.zeros(4), WHOLE[0].t()), "1,0", False),
        ("all_to_all_single", (torch.zeros(2, 2).t(), torch.zeros(2, 2)), "", True),
        ("barrier", (), "", False),
        ("allreduce", ([torch.zeros(2, 2).to_sparse()],), "", False),
    ],
)
def test_memory_that_is_used_as_it_lies(method, args, order, gaps):
    note, _ = noted(method, *args)
    assert (note.order, note.gaps) == (order, gaps)


def test_types_of_several_tensors():
    both = [torch.zeros(1), torch.zeros(1, dtype=torch.int32)]
    assert noted("allreduce_coalesced", both)[0].types == (torch.float32, torch.int32)
    assert noted("barrier")[0].types == ()


def test_what_else_a_group_numbers():
    group = Group()
    collective_notes.note_others(group, "gloo")
    collective_notes.note_others(group, "gloo", 4)
    collective_notes.note_others(group, "nccl", 2)
    collective_notes.note(group, "allreduce", ([torch.zeros(1)],), "gloo", 7, (-1, None, False))
    assert [entry[:2] for entry in collective_notes.noted[group]["gloo"]] == [(7, 5)]
