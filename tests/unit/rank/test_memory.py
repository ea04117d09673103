"""What a rank says of its memory and of its GPU; torch.cuda is a stand-in here."""

import mmap
from types import SimpleNamespace

import psutil
import pytest
import torch

from labkit.rank import memory
from labkit.wire.state import Gpu


@pytest.fixture
def gpu(monkeypatch):
    """Pretend that this rank computes on the second GPU."""
    asked = []

    def answer(value):
        return lambda device: (asked.append(device), value)[1]

    monkeypatch.setattr(memory, "device", torch.device("cuda:1"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_reserved", answer(5))
    monkeypatch.setattr(torch.cuda, "utilization", answer(57))
    properties = SimpleNamespace(total_memory=80)
    monkeypatch.setattr(torch.cuda, "get_device_properties", answer(properties))
    return asked


def test_a_gpu_is_asked_by_its_number(gpu):
    assert memory.gpu() == Gpu(5, 80, 57)
    assert set(gpu) == {torch.device("cuda:1")}


def test_a_driver_that_does_not_tell_is_no_failure(gpu, monkeypatch):
    def fail(device):
        raise RuntimeError("NVML: not supported")

    monkeypatch.setattr(torch.cuda, "utilization", fail)
    assert memory.gpu() == Gpu(5, 80, None)


def test_cuda_is_never_initialised_by_the_question(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert memory.gpu() is None
    assert gpu == []


def test_a_rank_on_the_cpu_has_none():
    assert memory.gpu() is None


def test_memory_is_this_process_own():
    exact = psutil.Process().memory_full_info().uss
    assert abs(memory.used() - exact) < 8 * 2**20
    # From the system itself: the allocator may have that much left from what was freed before.
    with mmap.mmap(-1, 64 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        held.write(b"x" * len(held))
        grown = memory.used() - exact
    assert 56 * 2**20 < grown < 72 * 2**20
