"""Plug-ins of backends are found as torch finds them; for its own names nothing is searched."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from labkit.rank.torch_internals import backend_plugins

pytestmark = pytest.mark.skipif(
    not hasattr(dist.Backend, "_ensure_backend_registered"), reason="torch has no search here"
)


@pytest.fixture
def searched(monkeypatch):
    """The names of backends that torch has looked for, once ``install`` is called."""
    names = []
    monkeypatch.setattr(dist.Backend, "_ensure_backend_registered", names.append)
    return names


def test_torchs_own_are_not_looked_for(searched, monkeypatch):
    monkeypatch.setattr(backend_plugins, "installed", frozenset)
    backend_plugins.install()
    for name in ("gloo", "NCCL", "someone", "undefined"):
        dist.Backend._ensure_backend_registered(name)
    assert searched == ["someone"]


def test_one_that_has_a_plug_in_is(searched, monkeypatch):
    monkeypatch.setattr(backend_plugins, "installed", lambda: frozenset({"gloo"}))
    backend_plugins.install()
    for name in ("Gloo", "nccl"):
        dist.Backend._ensure_backend_registered(name)
    assert searched == ["Gloo"]
