"""What the doctor finds here, and what it says of machines that are not here."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from labkit.tools.doctor import examine, software
from labkit.tools.doctor.software import Finding

GPU = {"name": "H200", "bytes": 141 * software.GIB}


def facts(gpus: int, nccl: tuple[int, ...] | None = (2, 30, 7), **more: Any) -> dict[str, Any]:
    """Describe a machine with some GPUs."""
    version = list(nccl) if nccl else None
    seen = [f"GPU-{i}" for i in range(gpus)]
    place = {"host": "a", "pid": 1, "hint": None, "gpus": seen, "nccl": version, "cores": 8}
    place |= {"missing": []}
    return {
        "place": place,
        "torch": "2.15.0",
        "torchvision": "0.29.2",
        "cuda": "13.2",
        "nccl": version,
        "gloo": True,
        "gpus": [GPU] * gpus,
        "no_gpu": "",
        **more,
    }


def finding(findings: list[Finding], topic: str) -> Finding:
    return next(f for f in findings if f.topic == topic)


# -- torch and GPUs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine_facts", "text"),
    [
        (facts(0), "labkit.start(4) gives cpu with backend gloo"),
        (facts(1), "labkit.start(4) gives cuda:0 with backend nccl; they take turns on it"),
        (
            facts(1, nccl=(2, 29, 1)),
            "labkit.start(4) gives cuda:0 with backend gloo; they take turns on it",
        ),
        (facts(4), "labkit.start(4) gives cuda:0, cuda:1, cuda:2, cuda:3 with backend nccl"),
        (
            facts(2, nccl=None),
            "labkit.start(4) gives cuda:0, cuda:1 with backend gloo; they take turns on them",
        ),
    ],
)
def test_ranks(machine_facts: dict[str, Any], text: str) -> None:
    assert finding(software.check_torch(machine_facts), "ranks").text == text


def test_gpus_are_counted_by_kind() -> None:
    findings = software.check_torch(facts(2))
    assert finding(findings, "GPUs").text == "2 × H200, 141 GiB"


def test_gpus_that_torch_cannot_use_are_a_note_with_the_reason() -> None:
    old = finding(software.check_torch(facts(0, no_gpu="its driver is from the past")), "GPUs")
    none = finding(software.check_torch(facts(0)), "GPUs")
    assert (old.state, none.state) == ("note", "ok")
    assert old.text == (
        "none that torch can use: its driver is from the past; every rank computes on the CPU"
    )
    assert none.text.startswith("none: every rank computes on the CPU")


def test_nccl_that_cannot_share_a_gpu() -> None:
    old = finding(software.check_torch(facts(1, nccl=(2, 29, 1))), "NCCL").text
    new = finding(software.check_torch(facts(1)), "NCCL").text
    assert "one rank per GPU" in old
    assert "several ranks can share one GPU" in new


def test_a_torchvision_for_another_torch_is_a_problem() -> None:
    broken = facts(0, torchvision_problem="RuntimeError: operator nms does not exist\nmore")
    assert finding(software.check_torch(broken), "torch").state == "problem"


def test_a_core_without_torchvision_is_no_problem() -> None:
    found = finding(software.check_torch(facts(0, torchvision=None)), "torch")
    assert (found.state, "torchvision" in found.text) == ("ok", False)


def fake_slurm(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let a piece of Python stand in for the process that asks torch."""
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return popen([sys.executable, "-c", code], **options)

    monkeypatch.setattr(software.subprocess, "Popen", start)


def test_a_driver_that_hangs_does_not_hang_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(monkeypatch, "import time; time.sleep(600)")
    before = time.monotonic()
    answer = software.torch_facts(timeout=1)
    assert time.monotonic() - before < 10
    [only] = software.check_torch(answer)
    assert (only.state, only.text) == ("problem", "cannot be used: no answer within 1 s")
    assert [p for p in psutil.Process().children() if "time.sleep(600)" in p.cmdline()] == []


def test_a_torch_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(monkeypatch, "raise ImportError('libcudart.so.13: cannot open')")
    [only] = software.check_torch(software.torch_facts())
    assert only.state == "problem"
    assert "libcudart.so.13: cannot open" in only.text


def test_a_torch_that_kills_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(monkeypatch, "import os; os.abort()")
    [only] = software.check_torch(software.torch_facts())
    assert only.state == "problem"
    assert "SIGABRT" in only.text


# -- packages -----------------------------------------------------------------------------------


def test_packages_are_compared_with_what_is_required() -> None:
    assert software.check_packages(["torch>=2.11"]).state == "ok"
    wrong = software.check_packages(
        ["torch>=99", "no-such-package-here", 'torch>=99; python_version < "3"']
    )
    assert wrong.state == "problem"
    assert wrong.text.startswith("torch is ")
    assert ", no-such-package-here is missing, but labkit needs torch>=99" in wrong.text
    assert 'pip install "torch>=99" "no-such-package-here"' in wrong.text
    newer = software.check_packages(["torch<2"])
    assert newer.state == "note"
    assert "newer than labkit was tested with (torch<2)" in newer.text


# -- the machine --------------------------------------------------------------------------------


def test_room_follows_labkits_own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    from labkit.notebook import startup

    memory = SimpleNamespace(total=32 << 30, available=24 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(startup, "RANK_BYTES", memory.total // 2)
    assert examine.check_room().state == "note"
    monkeypatch.setattr(startup, "RANK_BYTES", memory.total * 2)
    assert examine.check_room().state == "problem"
    monkeypatch.setattr(startup, "RANK_BYTES", 1)
    room = examine.check_room()
    assert room.state == "ok"
    assert f"about {startup.MAX_LOCAL_RANKS} ranks" in room.text
    monkeypatch.setenv("LABKIT_MAX_RANKS", "6")
    assert "room for about 6 ranks" in examine.check_room().text
    monkeypatch.setenv("LABKIT_MAX_RANKS", "six")
    assert examine.check_room().state == "problem"


def test_shared_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert examine.check_shm(str(tmp_path / "missing")).state == "note"
    monkeypatch.setattr(examine, "SMALL_SHM", 1 << 60)
    small = examine.check_shm(str(tmp_path))
    assert small.state == "note"
    assert "--shm-size" in small.text


def test_a_machine_without_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(99, "Cannot assign requested address")

    assert examine.check_loopback().state == "ok"
    monkeypatch.setattr(socket, "create_server", refuse)
    found = examine.check_loopback()
    assert found.state == "problem"
    assert "Cannot assign requested address" in found.text


def test_a_temporary_folder_that_does_not_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert examine.check_temp().state == "ok"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert examine.check_temp().state == "problem"
    deep = tmp_path / ("long" * 25)  # too long for the name of a socket
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    found = examine.check_temp()
    assert found.state == "problem"
    assert "short path" in found.text
    assert list(deep.iterdir()) == []


def test_a_damaged_subset_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert examine.check_data().state == "ok"
    (tmp_path / "data" / "MNIST" / "raw").mkdir(parents=True)
    monkeypatch.setattr(examine.datasets, "folders", lambda: [tmp_path / "data"])
    found = examine.check_data()
    assert found.state == "problem"
    assert "is missing" in found.text


def test_tools() -> None:
    assert examine.check_tools(lambda tool: f"/usr/bin/{tool}").state == "ok"
    some = examine.check_tools(lambda tool: "/usr/bin/srun" if tool == "srun" else None)
    assert some.state == "note"
    assert some.text.startswith("found srun; not here: mpiexec (")


def test_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine.hosts, "unavailable_reason", lambda: "")
    assert examine.check_hosts().state == "ok"
    monkeypatch.setattr(examine.hosts, "unavailable_reason", lambda: "Several hosts need a door.")
    found = examine.check_hosts()
    assert (found.state, found.text) == ("note", "Several hosts need a door.")


def test_a_temporary_folder_that_others_could_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = examine.check_temp()
    assert found.state == "problem"
    assert f"is not safe from other users: everybody can write to {tmp_path}" in found.text
