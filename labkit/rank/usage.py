"""Read how much memory this rank uses, and what its GPU does."""

from __future__ import annotations

import contextlib
from typing import Any

import psutil
import torch

#: This rank's device. Not torch's current one, which every thread has for itself.
device = torch.device("cpu")


def read() -> dict[str, Any]:
    """Return ``{"memory": bytes, "gpu": {"used", "total", "busy"} or None}``.

    Memory is what would be free if this process ended: the part of it that it shares with the
    warm process and with other ranks (torch itself, mostly) is nobody's own.
    """
    return {"memory": psutil.Process().memory_full_info().uss, "gpu": _gpu()}


def _gpu() -> dict[str, Any] | None:
    """Ask torch and the driver; never the one to initialise CUDA."""
    if device.type != "cuda" or not torch.cuda.is_initialized():
        return None
    busy = None
    with contextlib.suppress(Exception):  # the driver's library may lack this, or NVML be absent
        busy = int(torch.cuda.utilization(device))
    total = torch.cuda.get_device_properties(device).total_memory
    return {"used": torch.cuda.memory_reserved(device), "total": total, "busy": busy}
