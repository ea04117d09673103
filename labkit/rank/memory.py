"""Read how much memory this rank uses, and what its GPU does."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import psutil
import torch

from ..base import times
from ..wire.state import Gpu
from . import steady

#: This rank's device. Not torch's current one, which every thread has for itself.
device = torch.device("cpu")


class _Look(NamedTuple):
    when: float
    own: int
    resident: int


_exact = _Look(float("-inf"), 0, 0)


def used() -> int:
    """Return how many bytes of memory would be free if this process ended.

    What it shares with the warm process and with other ranks (torch itself, mostly) is nobody's
    own. Between two exact looks, what is resident grows by as much as what is its own.
    """
    global _exact
    process = psutil.Process()
    info = process.memory_info()
    resident = info.rss - getattr(info, "shared", 0)
    if steady.now() - _exact.when > times.MEMORY_KNOWN:
        _exact = _Look(steady.now(), process.memory_full_info().uss, resident)
    return max(0, _exact.own + resident - _exact.resident)


def gpu() -> Gpu | None:
    """Ask torch and the driver what this rank's GPU does; never the one to initialise CUDA."""
    if device.type != "cuda" or not torch.cuda.is_initialized():
        return None
    busy = None
    with contextlib.suppress(Exception):  # the driver's library may lack this, or NVML be absent
        busy = int(torch.cuda.utilization(device))
    total = torch.cuda.get_device_properties(device).total_memory
    return Gpu(torch.cuda.memory_reserved(device), total, busy)
