"""Which backend a rank asks torch for, and what NCCL may do by itself there."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from labkit.rank import process_group
from labkit.rank.torch_internals import groups


@pytest.fixture
def formed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Form no group; return what torch would have been asked for."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(process_group, "_store", SimpleNamespace(set_timeout=lambda limit: None))
    monkeypatch.setattr(dist, "PrefixStore", lambda prefix, store: prefix)
    monkeypatch.setattr(
        dist,
        "init_process_group",
        lambda backend, **named: calls.append({"backend": backend, **named}),
    )
    return calls


def join(backend: str, device: str) -> None:
    process_group.join(0, 2, backend, device, "127.0.0.1", 1, 2, 600)


def test_a_lab_of_nccl_has_gloo_for_tensors_on_the_cpu(formed: list[dict[str, Any]]) -> None:
    join("nccl", "cuda:1")
    assert formed[0]["backend"] == "cpu:gloo,cuda:nccl"
    assert formed[0]["device_id"] == torch.device("cuda:1")
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "2"
    assert os.environ["TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING"] == "0"


def test_a_lab_of_gloo_has_gloo_alone(formed: list[dict[str, Any]]) -> None:
    join("gloo", "cuda:0")
    assert (formed[0]["backend"], formed[0]["device_id"]) == ("gloo", None)
    assert not any(name.startswith("TORCH_NCCL") for name in os.environ)


def test_what_the_user_has_set_stays(formed: list[dict[str, Any]]) -> None:
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "3"
    join("nccl", "cuda:0")
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"


def test_only_the_nccl_part_of_a_group_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    aborted: list[str] = []

    class Group:
        def __init__(self, name: str, backend: str) -> None:
            self.name, self.backend = name, backend

        def _get_backend(self, device: torch.device) -> Any:
            if "cuda" not in self.backend:
                raise RuntimeError(f"No backend type associated with device type {device}")
            return SimpleNamespace(abort=lambda: aborted.append(f"{device} of {self.name}"))

    made = [
        Group("both", "cpu:gloo,cuda:nccl"),
        Group("gloo", "gloo"),
        Group("elsewhere", "xpu:nccl"),
    ]
    monkeypatch.setattr(groups, "groups", lambda: made)
    monkeypatch.setattr(dist, "get_backend", lambda group: group.backend)
    assert groups.abort() == 1
    assert aborted == ["cuda of both"]


def test_every_setting_is_one_that_torch_reads() -> None:
    """Their names stand in the header that comes with torch, or where it chooses what nccl is."""
    folder = Path(torch.__file__).parent
    header = folder / "include/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"
    text = header.read_text() + (folder / "distributed/distributed_c10d.py").read_text()
    unread = [name for name in process_group.NCCL_SETTINGS if f'"{name}"' not in text]
    known = {"TORCH_DIST_USE_NCCL2"} if "nccl2" not in text else set()  # not before torch 2.15
    assert set(unread) == known
