"""Look at the machine this process runs on, without a driver and without torch."""

from __future__ import annotations

import os
from pathlib import Path

DEVICES = Path("/dev")


def count_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_gpu() -> bool:
    """Tell whether there is a device of an NVIDIA GPU, whatever its driver can do."""
    return any(DEVICES.glob("nvidia[0-9]*"))
