"""A group outlives the reducer of a DDP model."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.distributed as dist
from torch.torch_version import TorchVersion

from labkit.rank.torch_internals import reducers


class Stock:
    """What stands for torch's reducer."""

    def __init__(self, *args: object, **named: object) -> None:
        self.args, self.named = args, named


@pytest.fixture
def group():
    store = dist.HashStore()
    made = dist.ProcessGroup(store, 0, 1)
    return made


def test_a_reducer_is_made_as_before_and_keeps_its_group_until_it_has_ended(group):
    make = reducers.keeping_groups(Stock)
    reducer = make([1], group, bucket=3)
    assert (reducer.args, reducer.named) == (([1], group), {"bucket": 3})
    reducer.args = ()
    seen = weakref.ref(group)
    ended = []
    weakref.finalize(reducer, lambda: ended.append(seen() is not None))
    del group, reducer
    gc.collect()
    assert ended == [True]


@pytest.mark.parametrize(
    ("version", "kept"), [("2.9.1", True), ("2.11.0+cu130", True), ("2.15.0", False)]
)
def test_only_a_torch_that_needs_it_keeps_the_groups(monkeypatch, version, kept):
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    monkeypatch.setattr(dist, "Reducer", Stock)
    made = []
    monkeypatch.setattr(
        reducers, "keeping_groups", lambda original: made.append(original) or original
    )
    reducers.install()
    assert made == [Stock] * kept


class Model(torch.nn.Module):
    """Makes its reducer as a DDP model does."""

    def __init__(self, make, *args):
        super().__init__()
        self.reducer = make(*args)


def known() -> set[int]:
    """Return the identities of the models that are there, and hold none of them."""
    return set(map(id, reducers.models()))


def test_models_are_known_for_as_long_as_they_are_there():
    before = known()
    make = reducers.noting(Stock)
    first, second = Model(make, 1), Model(make, 2)
    (lambda: make(3))()  # by hand, for no model
    assert known() == before | {id(first), id(second)}
    del first
    gc.collect()
    assert known() == before | {id(second)}
    assert second.reducer.args == (2,)
