"""Say what this machine and its torch are, as JSON: ``python -m tests.gpu.run.machine``.

A process of its own: a broken driver can hang or end whoever asks.
"""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from typing import Any

import torch

from labkit.rank.gpus import nccl_version
from labkit.wire.processes import count_cores

#: What the figures and the outputs depend on.
PACKAGES = (
    "torch-labkit",
    "torchvision",
    "ipyparallel",
    "ipykernel",
    "ipython",
    "nbclient",
    "numpy",
)


def driver() -> str | None:
    """Return the version of NVIDIA's driver; None if there is none that answers."""
    import pynvml

    try:
        pynvml.nvmlInit()
        found = pynvml.nvmlSystemGetDriverVersion()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
    return str(found)


def describe() -> dict[str, Any]:
    """Return the facts; ``gpus`` is empty where torch can use none."""
    loaded = nccl_version()
    gpus = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        gpu = torch.cuda.get_device_properties(index)
        gpus.append({"name": gpu.name, "gib": round(gpu.total_memory / 2**30, 1)})
    return {
        "gpus": gpus,
        "driver": driver(),
        "cores": count_cores(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": loaded and ".".join(map(str, loaded)),
        "nccl_of_torch": loaded and ".".join(map(str, torch.cuda.nccl.version()[:3])),
        "preloaded": os.environ.get("LD_PRELOAD", ""),
        "packages": {name: version(name) for name in PACKAGES},
    }


if __name__ == "__main__":
    print("\n" + json.dumps(describe()))
