"""Whether an agent of RPC lives here, or nobody can tell."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from labkit.rank.torch_internals import rpc

API = "torch.distributed.rpc.api"


@pytest.mark.parametrize(
    ("api", "is_called"),
    [
        (SimpleNamespace(_is_current_rpc_agent_set=lambda: True), True),
        (SimpleNamespace(_is_current_rpc_agent_set=lambda: False), False),
        (SimpleNamespace(), True),
    ],
)
def test_an_agent_is_there_or_may_be(monkeypatch, api, is_called):
    monkeypatch.setitem(sys.modules, API, api)
    assert rpc.is_called() is is_called


def test_there_is_none_where_nobody_has_imported_rpc(monkeypatch):
    monkeypatch.delitem(sys.modules, API, raising=False)
    assert not rpc.is_called()
