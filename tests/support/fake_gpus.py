"""Let a process meet GPUs that are not there: a stand-in for NVIDIA's two libraries.

``ctypes.CDLL`` gives it in the place of ``libnvidia-ml.so.1`` (NVML, by which torch counts GPUs)
and of ``libcuda.so.1`` (CUDA's driver). What each says of hidden GPUs, slices and old drivers is
from NVIDIA's documentation ("CUDA Environment Variables", the "MIG User Guide", "CUDA
Compatibility"). Nothing can be computed on them.

Preloaded in the warm process, it makes the machine of the variable ``LABKIT_TEST_GPUS``, as in
``gpus=4 driver=12.4``.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

VARIABLE = "LABKIT_TEST_GPUS"
NO_DEVICE, INVALID_DEVICE, DRIVER_MISMATCH = 100, 101, 803
TEXTS = {DRIVER_MISMATCH: b"system has unsupported display driver / cuda driver combination"}


@dataclass(frozen=True)
class Machine:
    """What a machine has.

    Attributes
    ----------
    gpus
        How many GPUs NVML sees.
    slices
        Slices (MIG) of each GPU; 0: none of them is sliced.
    driver
        The newest CUDA that the driver serves.
    broken
        The code that the driver fails with; NVML fails as well then.
    libraries
        Whether the driver's libraries are there at all.
    """

    gpus: int = 0
    slices: int = 0
    driver: tuple[int, int] = (99, 0)
    broken: int = 0
    libraries: bool = True

    def visible(self, environment: Mapping[str, str] = os.environ) -> list[str]:
        """List the UUIDs of what CUDA lets a process with this environment use, in its order."""
        whole = [uuid(gpu) for gpu in range(self.gpus)]
        every = [uuid(gpu, part) for gpu in range(self.gpus) for part in range(self.slices)]
        chosen = environment.get("CUDA_VISIBLE_DEVICES")
        if chosen is None:
            return every[:1] if self.slices else whole
        found: list[str] = []
        for name in filter(None, re.split(r"\s*,\s*", chosen.strip())):
            if name.isdigit():
                known = (every if self.slices else whole)[int(name) : int(name) + 1]
            else:
                known = [one for one in every + whole if one.startswith(name)]
            if len(known) != 1 or known[0] in found:
                break  # what follows the first one that is wrong does not count
            found += known
        return found[:1] if self.slices else found  # one slice per process


def uuid(gpu: int, part: int | None = None) -> str:
    """Return the UUID of a GPU, or of a slice of it."""
    if part is None:
        return f"GPU-{gpu:08x}-0000-0000-0000-{gpu:012x}"
    return f"MIG-{gpu:08x}-0000-0000-0000-{part:012x}"


class Nvml:
    """libnvidia-ml.so.1: sees whole GPUs, and knows nothing of CUDA_VISIBLE_DEVICES."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def nvmlInit(self) -> int:
        return 18 if self.machine.broken else 0  # NVML_ERROR_LIB_RM_VERSION_MISMATCH

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = self.machine.gpus
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = index + 1
        return 0

    def nvmlDeviceGetUUID(self, handle: ctypes.c_void_p, text: Any, size: int) -> int:
        text.value = uuid((handle.value or 0) - 1).encode()
        return 0


class Cuda:
    """libcuda.so.1: sees what CUDA_VISIBLE_DEVICES says."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def cuDriverGetVersion(self, version: Any) -> int:
        major, minor = self.machine.driver
        version._obj.value = 1000 * major + 10 * minor
        return 0

    def cuInit(self, flags: int) -> int:
        return self.machine.broken or (0 if self.machine.visible() else NO_DEVICE)

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = len(self.machine.visible())
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:
        device._obj.value = index
        return 0 if index < len(self.machine.visible()) else INVALID_DEVICE

    def cuDeviceGetUuid_v2(self, raw: Any, device: ctypes.c_int) -> int:
        text = self.machine.visible()[device.value]
        raw.raw = bytes.fromhex(text[4:].replace("-", ""))[:15] + text[:1].encode()
        return 0

    def cuGetErrorString(self, code: int, text: Any) -> int:
        text._obj.value = TEXTS.get(code)
        return 0 if code in TEXTS else 1


def install(machine: Machine, put: Callable[[Any, str, Any], object] = setattr) -> None:
    """Put this process on a machine, with a torch for CUDA 13.2; ``put`` sets each attribute."""
    original, fakes = ctypes.CDLL, {"libnvidia-ml.so.1": Nvml, "libcuda.so.1": Cuda}

    def load(name: str | None = None, *given: Any, **named: Any) -> Any:
        if name not in fakes:
            return original(name, *given, **named)
        if not machine.libraries:
            raise OSError(f"{name}: cannot open shared object file: No such file or directory")
        return fakes[name](machine)

    def count() -> int:  # CUDA's runtime, which torch falls back to
        usable = machine.libraries and not machine.broken and machine.driver >= (13, 0)
        return len(machine.visible()) if usable else 0

    put(ctypes, "CDLL", load)
    put(torch.version, "cuda", "13.2")
    put(torch._C, "_cuda_getDeviceCount", count)  # without it torch counts as built for CPUs


def read(text: str) -> Machine:
    """Read a machine as the variable has it."""
    given = dict(part.split("=") for part in text.split())
    major, _, minor = given.pop("driver", "99.0").partition(".")
    return Machine(driver=(int(major), int(minor)), **{k: int(v) for k, v in given.items()})


if VARIABLE in os.environ:
    install(read(os.environ[VARIABLE]))
