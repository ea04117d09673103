"""What can be said of a machine without a driver."""

import os
import socket
from pathlib import Path

import pytest

from labkit.wire import processes


def test_cores_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert processes.count_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert processes.count_cores() == 8


@pytest.mark.parametrize(("devices", "found"), [(["nvidia0"], True), ([], False)])
def test_a_gpu_is_a_device_with_a_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, devices: list[str], found: bool
) -> None:
    for name in [*devices, "nvidiactl", "nvidia-uvm"]:
        (tmp_path / name).touch()
    monkeypatch.setattr(processes, "DEVICES", tmp_path)
    assert processes.has_gpu() is found


def can_listen(port: int) -> bool:
    with socket.create_server(("127.0.0.1", port)) as server:
        return bool(server.getsockname()[1] == port)


def test_a_free_port_is_none_that_the_system_gives_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "EPHEMERAL", tmp_path / "range")
    processes.EPHEMERAL.write_text("25000\t60999\n")
    found = {processes.free_port() for _ in range(20)}
    assert len(found) > 1
    assert all(20_000 <= port < 25_000 and can_listen(port) for port in found)


@pytest.mark.parametrize("text", ["1024\t65535\n", None])
def test_where_the_range_is_everything_or_unknown_a_port_is_found_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None
) -> None:
    monkeypatch.setattr(processes, "EPHEMERAL", tmp_path / "range")
    if text is not None:
        processes.EPHEMERAL.write_text(text)
    assert can_listen(processes.free_port())


def test_a_host_without_a_free_port_is_an_error() -> None:
    with pytest.raises(OSError, match=r"no free port of 192\.0\.2\.1"):
        processes.free_port("192.0.2.1")
