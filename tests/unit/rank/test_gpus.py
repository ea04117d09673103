"""Which GPUs a process can compute on, and what is said where it is none of those there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from labkit.rank import gpus
from labkit.wire import processes as wire_machine
from tests.support import fake_gpus
from tests.support.fake_gpus import Machine, uuid

RANKS = "ranks on here compute on the CPU."


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Put this process on a machine: ``on(Machine(4), "0,2")`` hides half of its GPUs."""

    def put(machine: Machine, visible: str | None = None, *, files: int | None = None) -> None:
        fake_gpus.install(machine, lambda o, n, v: monkeypatch.setattr(o, n, v, raising=False))
        for index in range(machine.gpus if files is None else files):
            (tmp_path / f"nvidia{index}").touch()
        monkeypatch.setattr(wire_machine, "DEVICES", tmp_path)
        monkeypatch.setattr(gpus.socket, "gethostname", lambda: "here")
        if visible is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return put


#: A machine, what CUDA_VISIBLE_DEVICES says, and the GPUs that a process has then.
VISIBLE = {
    "no GPU": (Machine(libraries=False), None, []),
    "a driver without GPUs": (Machine(0), None, []),
    "one": (Machine(1), None, [0]),
    "two": (Machine(2), None, [0, 1]),
    "four": (Machine(4), None, [0, 1, 2, 3]),
    "eight": (Machine(8), None, list(range(8))),
    "hidden by nothing": (Machine(4), "", []),
    "hidden by -1": (Machine(4), "-1", []),
    "some": (Machine(4), "3,1", [3, 1]),
    "some, the rest hidden by -1": (Machine(4), "2,-1,0", [2]),
    "by UUID": (Machine(4), f"{uuid(2)},{uuid(0)}", [2, 0]),
    "by the beginning of a UUID": (Machine(4), "GPU-00000003", [3]),
    "what is not there ends the list": (Machine(2), "1,7,0", [1]),
    "nothing that is there": (Machine(2), "7", []),
    "a UUID of another machine": (Machine(2), "GPU-12345678", []),
    "the newest driver of an older minor version": (Machine(2, driver=(13, 0)), None, [0, 1]),
    "an old driver": (Machine(2, driver=(12, 4)), None, []),
    "a driver of another version than its library": (Machine(2, broken=803), None, []),
}


@pytest.mark.parametrize("name", VISIBLE)
def test_gpus_are_those_that_cuda_can_use(on, name: str) -> None:
    machine, visible, numbers = VISIBLE[name]
    on(machine, visible)
    found = gpus.find()
    assert [int(one[:8], 16) for one in found] == numbers
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("machine", "visible"),
    [
        (Machine(4, slices=7), None),  # torch counts four
        (Machine(1, slices=7), "0"),
        (Machine(2, slices=2), uuid(1, 1)),
        (Machine(2, slices=2), f"{uuid(1, 1)},{uuid(0, 0)}"),
    ],
)
def test_of_slices_a_process_has_one(on, machine: Machine, visible: str | None) -> None:
    on(machine, visible)
    (found,) = gpus.find()
    assert found.endswith(b"M".hex())
    if visible and visible.startswith("MIG"):
        assert found.startswith("00000001")


#: A machine, what CUDA_VISIBLE_DEVICES says, what is said at the start, and by the doctor.
TEXTS = {
    "no GPU": (Machine(libraries=False), None, "", ""),
    "GPUs": (Machine(2), None, "", ""),
    "an old driver": (
        Machine(2, driver=(12, 4)),
        None,
        f"NVIDIA's driver for CUDA 12.4 is too old for torch {torch.__version__}, which needs one "
        f"for CUDA 13.2: {RANKS}",
        f"NVIDIA's driver for CUDA 12.4 is too old for torch {torch.__version__}, which needs one "
        "for CUDA 13.2",
    ),
    "a driver of another version than its library": (
        Machine(1, broken=803),
        None,
        "NVIDIA's driver fails with error 803 of CUDA (system has unsupported display driver / "
        f"cuda driver combination): {RANKS}",
        "NVIDIA's driver fails with error 803 of CUDA (system has unsupported display driver / "
        "cuda driver combination)",
    ),
    "an error without words": (
        Machine(1, broken=999),
        None,
        f"NVIDIA's driver fails with error 999 of CUDA: {RANKS}",
        "NVIDIA's driver fails with error 999 of CUDA",
    ),
    "a container without the driver's libraries": (
        Machine(1, libraries=False),
        None,
        f"NVIDIA's driver has no library libcuda.so.1 that can be loaded: {RANKS}",
        "NVIDIA's driver has no library libcuda.so.1 that can be loaded",
    ),
    "hidden by nothing": (Machine(2), "", "", "CUDA_VISIBLE_DEVICES= hides them"),
    "hidden by -1": (Machine(2), "-1", "", "CUDA_VISIBLE_DEVICES=-1 hides them"),
    "hidden by Slurm": (Machine(2), "NoDevFiles", "", "CUDA_VISIBLE_DEVICES=NoDevFiles hides them"),
    "nothing that is there": (
        Machine(2),
        "7",
        f"CUDA_VISIBLE_DEVICES=7 shows none of the GPUs of this machine: {RANKS}",
        "CUDA_VISIBLE_DEVICES=7 shows none of the GPUs of this machine",
    ),
    "nothing that is there, nor any GPU": (Machine(0), "0", "", ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_wrong_is_one_sentence(on, recwarn, name: str) -> None:
    machine, visible, at_start, of_the_doctor = TEXTS[name]
    on(machine, visible)
    assert [str(missing) for missing in gpus.check()] == ([at_start] if at_start else [])
    assert (gpus.no_gpu_reason() if not gpus.find() else "") == of_the_doctor
    assert not recwarn.list  # nor torch's own words


def test_a_torch_for_cpus_is_told_by_the_doctor_alone(on, monkeypatch) -> None:
    on(Machine(1))
    monkeypatch.delattr(torch._C, "_cuda_getDeviceCount")
    monkeypatch.setattr(torch.version, "cuda", None)
    assert (gpus.find(), gpus.check()) == ((), [])
    assert gpus.no_gpu_reason() == "this torch is built without CUDA"


def test_a_driver_from_before_slices_is_asked_in_the_old_way(on, monkeypatch) -> None:
    on(Machine(2, driver=(13, 0)))
    original = fake_gpus.Cuda.cuDeviceGetUuid_v2
    monkeypatch.delattr(fake_gpus.Cuda, "cuDeviceGetUuid_v2")
    monkeypatch.setattr(fake_gpus.Cuda, "cuDeviceGetUuid", original, raising=False)
    assert len(gpus.find()) == 2
