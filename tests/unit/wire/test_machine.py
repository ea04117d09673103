"""What can be said of a machine without a driver."""

import os
from pathlib import Path

import pytest

from labkit.wire import machine


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert machine.count_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert machine.count_cores() == 8


@pytest.mark.parametrize(("devices", "found"), [(["nvidia0"], True), ([], False)])
def test_a_gpu_is_a_device_with_a_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, devices: list[str], found: bool
) -> None:
    for name in [*devices, "nvidiactl", "nvidia-uvm"]:
        (tmp_path / name).touch()
    monkeypatch.setattr(machine, "DEVICES", tmp_path)
    assert machine.has_gpu() is found
