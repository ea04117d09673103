"""Which variable holds what has ended, and the sentence that says so."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from labkit.rank import tracebacks
from labkit.rank.observe import ended_groups
from labkit.rank.torch_internals import ended
from labkit.wire import texts


class Thing:
    """What a cell has made, of a class of its own."""


Thing.__module__ = "__main__"


@pytest.fixture
def group():
    return dist.ProcessGroup(dist.HashStore(), 0, 1)


@pytest.fixture
def names(monkeypatch):
    """The names of the cells, as a rank has them."""
    own = {}
    monkeypatch.setattr(tracebacks, "has_shell", lambda: True)
    monkeypatch.setattr(tracebacks, "get_shell", lambda: SimpleNamespace(user_ns=own))
    monkeypatch.setattr(ended_groups, "_bound", {})
    monkeypatch.setattr(ended_groups, "left", "")
    return own


def made_in(cell, names, **things):
    """Let a cell make things."""
    ended_groups.begin_cell(f"#px {cell}\n")
    names.update(things)
    ended_groups.end_cell(names)


def test_a_variable_has_the_cell_that_gave_it_its_value(names):
    first, second = Thing(), Thing()
    made_in("In[2]", names, a=first, b=second)
    made_in("In[3]", names, b=first)
    assert ended_groups.find_name(first) == ("a", "In[2]")
    assert ended_groups.find_name(second) == ("", "")


def test_what_variables_hold_is_found(names):
    parts = [Thing() for _ in range(4)]
    holder = Thing()
    holder.part = parts[3]
    made_in("In[2]", names, d={"x": parts[0]}, l=[parts[1]], t=(0, parts[2]), h=holder, _=Thing())
    found = [ended_groups.find_name(part)[0] for part in parts]
    assert found == ["d['x']", "l[0]", "t[1]", "h.part"]
    assert ended_groups.find_name(names["_"]) == ("", "")


def test_a_part_of_a_model_is_found_by_the_model(names):
    model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    made_in("In[2]", names, model=model)
    assert ended_groups.find_name(model[0]) == ("model", "In[2]")


def test_the_variable_of_a_loop_that_runs_is_not_where_it_was_made(names):
    made_in("In[2]", names, models=[Thing()])
    names["aa"] = names["models"][0]
    assert ended_groups.find_name(names["aa"]) == ("models[0]", "In[2]")


def test_a_group_that_is_in_no_table_of_torchs_has_no_address(names, group, monkeypatch):
    made_in("In[2]", names, pair=group)
    monkeypatch.setitem(ended._ended, group, "lab.reset()")
    error = KeyError(group)
    ended_groups.explain(error)
    assert "pair (sub-group, made in In[2]) belongs" in str(error)


def test_a_variable_that_a_function_has_set_since_has_no_cell(names):
    made_in("In[2]", names, a=Thing())
    names["a"] = other = Thing()
    assert ended_groups.find_name(other) == ("a", "")


def test_the_sentence(names, group, monkeypatch):
    made_in("In[2]", names, pair=group)
    monkeypatch.setitem(ended._ended, group, "the deadlock in In[3]")
    ending = "belongs to the process group that ended with the deadlock in In[3]"
    assert texts.BELONGS in ending
    text = ended_groups.describe(group, group)
    assert text == f"pair (sub-group, made in In[2]) {ending}: run In[2] again."
    del names["pair"]
    assert ended_groups.describe(group, group) == f"A sub-group {ending}: make it again."
    monkeypatch.setattr(ended_groups, "left", "In[4] ended the lab's process group; …")
    assert ended_groups.describe(group, group) == (
        f"A sub-group {ending}. lab.reset() forms a new one; then make it again."
    )


def test_a_call_in_a_group_that_has_ended_is_refused(group):
    ended.check(group)
    ended._ended[group] = "lab.reset()"
    with pytest.raises(ValueError, match=texts.OF_ENDED):
        ended.check(group)
    assert ended.is_ended(group)


def test_nothing_is_kept_of_a_group_that_is_gone():
    before = len(ended._ended)
    group = dist.ProcessGroup(dist.HashStore(), 0, 1)
    ended._ended[group] = "lab.reset()"
    del group
    gc.collect()
    assert len(ended._ended) == before


@pytest.mark.parametrize(
    "text",
    [
        "Connection closed by peer [127.0.0.1]:13215. This is typically caused by a remote worker",
        "Process group <torch.distributed.ProcessGroup object at 0x7f> is not initialized in the "
        "world group map. Please initialize the group first.",
        "Group <…> is not registered, please create group with torch.distributed.new_group API",
        "Could not resolve the process group registered under the name 1",
    ],
)
def test_an_error_without_a_trace_of_such_a_group_stays_as_it_is(text, names, monkeypatch):
    """Another rank may be gone, or the program may name a group that never was."""
    monkeypatch.setattr(ended, "_last", "the deadlock in In[3]")
    error = RuntimeError(text)
    ended_groups.explain(error)
    assert str(error) == text


def test_the_error_of_a_missing_group_says_what_has_ended_it(names, monkeypatch):
    error = ValueError(f"{texts.NO_GROUP}, please make sure to call init_process_group.")
    ended_groups.explain(error)
    assert "please make sure" in str(error)
    left = ended_groups.LEFT.format("In[2]")
    monkeypatch.setattr(ended_groups, "left", left)
    ended_groups.explain(error)
    assert str(error) == f"{texts.NO_GROUP}: {left}"


def test_a_mesh_names_no_sub_group_any_more(monkeypatch, group):
    mesh = SimpleNamespace(_dim_group_names=["0", "3"])
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(ended.groups, "default", lambda: SimpleNamespace(group_name="0"))
    for _ in range(2):
        ended._rename(mesh)
        assert mesh._dim_group_names == ["0", "3 (ended)"]
    ended._rename(SimpleNamespace())
