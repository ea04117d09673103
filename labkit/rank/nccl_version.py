"""Ask the NCCL that this process has loaded for its version."""

from __future__ import annotations

import ctypes
import os

import torch
import torch.distributed as dist

LIBRARY = "libnccl.so.2"


def nccl_version() -> tuple[int, ...] | None:
    """Return NCCL's version, such as (2, 30, 7); None if this torch has no NCCL.

    What ``torch.cuda.nccl.version()`` returns is the version that torch was compiled with. A
    newer library than that may be loaded (pip upgrades it alone, ``LD_PRELOAD`` brings it), and
    what NCCL can do, such as sharing a GPU, is a matter of the library. Only where it is part of
    torch itself, the two are one.
    """
    if not dist.is_nccl_available():
        return None
    return loaded_version(LIBRARY) or tuple(torch.cuda.nccl.version()[:3])


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
