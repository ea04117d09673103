"""Find the GPUs that torch can compute on here, or say why it can use none of those there are.

Torch counts by NVML, which sees GPUs that CUDA cannot use: under a driver that is too old for this
torch, and each whole GPU where CUDA gets one slice of them (MIG). So CUDA's driver is asked as
well, which needs no context; only what both count is handed out to ranks.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ..wire.processes import has_gpu
from ..wire.state import Missing

FEATURE = "GPUs"
#: By which a user hides GPUs from CUDA.
VISIBLE = "CUDA_VISIBLE_DEVICES"
#: What it is where somebody wants no GPU; Slurm sets the last.
NONE = ("", "-1", "NoDevFiles")
LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
NCCL = "libnccl.so.2"
#: CUDA's driver has found none, or all are hidden.
CUDA_ERROR_NO_DEVICE = 100


@dataclass(frozen=True)
class Driver:
    """What CUDA's driver says.

    Attributes
    ----------
    ids
        The UUID of each GPU, or slice of one, that it lets this process see.
    version
        The newest CUDA that it serves, as in (12, 4); None if it does not say.
    problem
        What is wrong with it, as what follows its name in a sentence; "" if it can be used.
    """

    ids: tuple[str, ...] = ()
    version: tuple[int, int] | None = None
    problem: str = ""


def find() -> tuple[str, ...]:
    """Return what tells apart the GPUs that torch can compute on here; makes no CUDA context."""
    seen = _seen()
    if not seen or torch.version.cuda is None:  # ROCm's have other libraries
        return tuple(map(str, range(seen)))
    driver = ask_driver()
    return () if driver.problem or _too_old(driver) else driver.ids[:seen]


def check() -> list[Missing]:
    """Return why torch computes on no GPU of this machine; nothing where it does, or has none.

    Who has hidden them, or has a torch for CPUs, need not be told at each start: see
    :func:`no_gpu_reason`.
    """
    wanted = os.environ.get(VISIBLE) not in NONE and torch.version.cuda is not None
    reason = _reason() if wanted and not find() else None
    return [reason] if reason else []


def no_gpu_reason() -> str:
    """Return why torch can use none of this machine's GPUs, "" if it has none; for the doctor."""
    if torch.version.cuda is None and torch.version.hip is None:
        return "this torch is built without CUDA" if has_gpu() else ""
    if os.environ.get(VISIBLE) in NONE:
        return f"{VISIBLE}={os.environ[VISIBLE]} hides them" if has_gpu() else ""
    reason = _reason()
    return "" if reason is None else str(reason).rpartition(": ")[0]


def _seen() -> int:
    """Count as torch does, without what it says where it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.cuda.device_count()


def _reason() -> Missing | None:
    """Return why CUDA cannot use the GPUs that are there; None if there are none to see."""
    if not (has_gpu() or _seen()):
        return None
    driver = ask_driver()
    loss = f"ranks on {socket.gethostname()} compute on the CPU"
    if driver.problem:
        verb, _, what = driver.problem.partition(" ")
        return Missing("NVIDIA's driver", (what,), loss, feature=FEATURE, verb=verb)
    if _too_old(driver):
        assert driver.version is not None
        own = "NVIDIA's driver for CUDA {}.{}".format(*driver.version)
        asked = f"torch {torch.__version__}, which needs one for CUDA {torch.version.cuda}"
        return Missing(own, (asked,), loss, feature=FEATURE, verb="is too old for")
    about, none = "NVIDIA's driver", "none of the GPUs of this machine"
    if VISIBLE in os.environ:
        about = f"{VISIBLE}={os.environ[VISIBLE]}"
    return Missing(about, (none,), loss, feature=FEATURE, verb="shows")


def _too_old(driver: Driver) -> bool:
    """Return whether a driver is older than the CUDA that torch was built with.

    One of the same major version will do: NVIDIA's "minor version compatibility".
    """
    needed = int((torch.version.cuda or "0").partition(".")[0])
    return driver.version is not None and driver.version[0] < needed


def ask_driver() -> Driver:
    """Ask CUDA's driver, as CUDA itself would at its first call in this process."""
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError:
        return Driver(problem=f"has no library {LIBRARY} that can be loaded")
    number, version, ids = ctypes.c_int(), None, []
    if not cuda.cuDriverGetVersion(ctypes.byref(number)):
        version = (number.value // 1000, number.value % 1000 // 10)
    code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(number))
    for index in range(0 if code else number.value):
        device, uuid = ctypes.c_int(), ctypes.create_string_buffer(16)
        code = cuda.cuDeviceGet(ctypes.byref(device), index) or _ask_uuid(cuda)(uuid, device)
        ids.append(uuid.raw.hex())
    if code and code != CUDA_ERROR_NO_DEVICE:
        return Driver((), version, f"fails with error {code} of CUDA{_explain(cuda, code)}")
    return Driver(tuple(ids), version)


def _ask_uuid(cuda: Any) -> Any:
    """Return the function for a GPU's UUID: since CUDA 11.4 there is one that knows slices."""
    return getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid


def _explain(cuda: Any, code: int) -> str:
    text = ctypes.c_char_p()
    if cuda.cuGetErrorString(code, ctypes.byref(text)) or not text.value:
        return ""
    return f" ({text.value.decode()})"


def nccl_version() -> tuple[int, ...] | None:
    """Return NCCL's version, such as (2, 30, 7); None if this torch has no NCCL.

    What ``torch.cuda.nccl.version()`` returns is the version that torch was compiled with. A
    newer library than that may be loaded (pip upgrades it alone, ``LD_PRELOAD`` brings it), and
    what NCCL can do, such as sharing a GPU, is a matter of the library. Only where it is part of
    torch itself, the two are one.
    """
    if not dist.is_nccl_available():
        return None
    return loaded_version(NCCL) or tuple(torch.cuda.nccl.version()[:3])


def loaded_version(library: str) -> tuple[int, ...] | None:
    """Return the version of the NCCL that is loaded under this name; None if none is.

    References
    ----------
    NCCL's header: ``NCCL_VERSION(X,Y,Z)`` is 10000 X + 100 Y + Z, and ncclGetVersion returns it;
    up to 2.8 it was 1000 X + 100 Y + Z.
    """
    try:  # RTLD_NOLOAD: only look, a library that torch has not loaded says nothing of it
        nccl = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        ask = nccl.ncclGetVersion
    except (OSError, AttributeError):
        return None
    code = ctypes.c_int()
    if ask(ctypes.byref(code)) != 0:
        return None
    return split(code.value)


def split(code: int) -> tuple[int, int, int]:
    """Split what ncclGetVersion returns into major, minor and patch."""
    unit = 10_000 if code >= 10_000 else 1_000
    return code // unit, code % unit // 100, code % 100
