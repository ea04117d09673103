"""What the flight recorder leaves out of a call: place, root, splits; and sizes of messages."""

from __future__ import annotations

from types import SimpleNamespace
from weakref import WeakKeyDictionary

import pytest
import torch

from labkit.rank import tracebacks
from labkit.rank.observe import call_details
from labkit.rank.observe.call_details import Call
from labkit.rank.torch_internals import groups
from labkit.wire.samples import Size


class Group:
    """A process group of two, as far as it matters."""

    def size(self):
        return 2


def serving(group, tensors):
    """Name the backend of some tensors, as a group of two backends has it."""
    return "nccl" if any(t.device.type == "meta" for t in tensors) else "gloo"


class Work:
    """What a call returns."""


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """Count the operations of a group by hand, and let the records be empty."""
    state = SimpleNamespace(number=0)
    monkeypatch.setattr(groups, "operation", lambda work: state.number)
    monkeypatch.setattr(groups, "serving", serving)
    monkeypatch.setattr(groups, "issued", lambda group: state.number)
    for name in ("calls", "sizes", "fresh", "origins"):
        monkeypatch.setattr(call_details, name, WeakKeyDictionary())
    return state


def in_cell(monkeypatch, code, **names):
    """Run code as the cell In[7] would."""
    monkeypatch.setattr(tracebacks, "is_cell", lambda file: file == "In[7]")
    exec(compile(code, "In[7]", "exec"), names)


def test_the_place_of_a_call_is_the_innermost_line_of_a_cell(monkeypatch):
    group, work = Group(), Work()
    code = "def step():\n    note()\n\nstep()\n"
    note = lambda: call_details.note_call(group, "allreduce", (), work)  # noqa: E731
    in_cell(monkeypatch, code, note=note)
    assert call_details.calls[group] == {("gloo", 0): Call(("In[7]", 2))}
    assert call_details.origins[work] == ("In[7]", 2)


def test_a_call_outside_of_cells_has_no_place(monkeypatch):
    monkeypatch.setattr(tracebacks, "is_cell", lambda file: False)
    assert call_details.find_place() is None
    assert call_details.describe(None) == ("", "")
    group, work = Group(), Work()
    call_details.note_call(group, "allreduce", (), work)
    assert call_details.calls[group] == {("gloo", 0): Call(None)}
    assert work not in call_details.origins


ROOT = SimpleNamespace(rootRank=1)


@pytest.mark.parametrize("name", ["broadcast", "reduce", "gather", "scatter"])
def test_the_root_is_in_the_options_of_a_rooted_call(name):
    assert call_details.ends(Group(), name, ([], ROOT)) == (1, None)
    assert call_details.ends(Group(), name, ([],)) == (None, None)


def test_a_call_without_a_root_has_none():
    assert call_details.ends(Group(), "allreduce", ([], ROOT)) == (None, None)


def test_splits_are_counted_in_elements():
    """Rows of an all_to_all_single have elements of their own: here 3."""
    out, own = torch.zeros(4, 3), torch.zeros(5, 3)
    to, back = [2, 3], [1, 3]
    found = call_details.ends(Group(), "alltoall_base", (out, own, back, to))
    assert found == (None, ((6, 9), (3, 9)))


def test_splits_that_were_not_given_are_equal():
    out, own = torch.zeros(4), torch.zeros(4)
    found = call_details.ends(Group(), "alltoall_base", (out, own, [], []))
    assert found == (None, ((2, 2), (2, 2)))


def test_splits_of_lists_are_the_sizes_of_their_tensors():
    out, own = [torch.zeros(1), torch.zeros(2, 2)], [torch.zeros(3), torch.zeros(0)]
    assert call_details.ends(Group(), "alltoall", (out, own)) == (None, ((3, 0), (1, 4)))


def test_the_sizes_of_messages_are_counted_over_their_tensors():
    group = Group()
    tensors = [torch.zeros(2, 3), torch.zeros(4)]
    call_details.note_message(group, ("send", 1, 0, 1), tensors, Work())
    call_details.note_message(group, ("recv", 1, 5, 1), [], None)
    assert call_details.sizes_of(group, 9) == {
        ("send", 1, 0, 1): Size(10, "float32", "", ""),
        ("recv", 1, 5, 1): Size(0, "", "", ""),
    }
    assert list(call_details.sizes_of(group, 1)) == [("recv", 1, 5, 1)]
    assert call_details.sizes_of(Group(), 9) == {}


def test_records_have_a_limit(counted):
    group = Group()
    for number in range(call_details.KEPT + 5):
        counted.number = number
        call_details.note_call(group, "allreduce", (), Work())
        call_details.note_message(group, ("send", 1, 0, number), [], None)
    assert len(call_details.calls[group]) == len(call_details.sizes[group]) == call_details.KEPT
    assert min(call_details.calls[group]) == ("gloo", 5)
    assert ("send", 1, 0, 4) not in call_details.sizes[group]


def test_a_call_that_torch_does_not_number_is_not_kept(monkeypatch):
    monkeypatch.setattr(groups, "operation", lambda work: None)
    monkeypatch.setattr(groups, "issued", lambda group: None)
    group = Group()
    call_details.note_call(group, "allreduce", (), Work())
    assert group not in call_details.calls


def test_calls_of_two_backends_under_one_number_are_told_apart():
    """A group may have NCCL for tensors on the GPU and gloo for those on the CPU."""
    group = Group()
    call_details.note_call(group, "allreduce", ([torch.zeros(1)],), Work())
    call_details.note_call(group, "broadcast", ([torch.zeros(1, device="meta")], ROOT), Work())
    found = call_details.calls[group]
    assert (found["gloo", 0].root, found["nccl", 0].root) == (None, 1)


def test_what_is_kept_goes_with_its_group():
    group = Group()
    call_details.note_call(group, "allreduce", (), Work())
    assert len(call_details.calls) == 1
    del group
    assert len(call_details.calls) == 0
