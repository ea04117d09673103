"""Functions of torch that were made while a group was there, and the group is gone."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from labkit.rank.torch_internals import stale


@pytest.fixture
def module(monkeypatch):
    """A module of torch.distributed that anybody may import late."""
    made = types.ModuleType("torch.distributed.made_by_a_test")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_a_default_that_is_the_group_is_none(module):
    group, other = object(), object()

    def gather(tensor, op="sum", group=group, *, keyword=group):
        return op, group, keyword

    def elsewhere(group=other):
        return group

    module.gather, module.elsewhere = gather, elsewhere
    stale.forget(group)
    assert gather(0) == ("sum", None, None)
    assert elsewhere() is other


def test_methods_are_functions_too(module):
    group = object()
    made_here = type("Scaler", (), {"__module__": module.__name__})

    def __init__(self, group=group):
        self.group = group

    made_here.__init__ = __init__
    module.Scaler = made_here
    stale.forget(group)
    assert made_here().group is None


def test_defaults_that_cannot_be_compared_are_left_alone(module):
    twos = torch.full((2,), 2.0)

    def scale(by=twos):
        return by

    module.scale = scale
    stale.forget(object())
    assert scale() is twos
