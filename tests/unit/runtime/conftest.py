"""What the tests of the kernel's side share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from labkit.base import times


@pytest.fixture(params=[1.0, 20.0], ids=["idle", "busy"])
def factor(request, monkeypatch):
    """Let this machine be idle, and as busy as can be."""
    monkeypatch.setattr(times, "pace", SimpleNamespace(factor=request.param))
    return request.param
