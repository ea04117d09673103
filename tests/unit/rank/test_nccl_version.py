"""The version of the NCCL that is loaded, not of the one that torch was compiled with."""

import ctypes

import pytest
import torch
import torch.distributed as dist

from labkit.rank import gpus as module
from labkit.rank.gpus import loaded_version, nccl_version, split


@pytest.mark.parametrize(
    ("code", "version"),
    [(2708, (2, 7, 8)), (20_000 + 905, (2, 9, 5)), (22_807, (2, 28, 7)), (23_007, (2, 30, 7))],
)
def test_ncclgetversion_is_split(code, version):
    assert split(code) == version


def test_a_library_that_is_not_loaded_has_no_version():
    assert loaded_version("libnccl-of-nobody.so.2") is None


def test_a_library_without_the_function_has_no_version():
    assert loaded_version("libc.so.6") is None


def library(monkeypatch: pytest.MonkeyPatch, code: int, result: int) -> None:
    class Fake:
        def __init__(self, name: str, mode: int) -> None: ...

        def ncclGetVersion(self, where) -> int:
            where._obj.value = code
            return result

    monkeypatch.setattr(ctypes, "CDLL", Fake)


def test_a_newer_library_than_torchs_is_seen(monkeypatch):
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
    library(monkeypatch, code=23_007, result=0)
    assert nccl_version() == (2, 30, 7)
    library(monkeypatch, code=0, result=1)
    assert nccl_version() == (2, 28, 9)


def test_an_nccl_inside_torch_has_torchs_version(monkeypatch):
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9, "+cuda13.0"))
    monkeypatch.setattr(module, "NCCL", "libnccl-of-nobody.so.2")
    assert nccl_version() == (2, 28, 9)


def test_a_torch_without_nccl_has_none(monkeypatch):
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    assert nccl_version() is None
