"""Print what torch finds on this machine, as JSON: ``python -m labkit.tools.doctor.torch_facts``.

A process of its own, because a broken GPU driver can hang or kill whoever asks.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from typing import Any


def gather() -> dict[str, Any]:
    """Return what a rank would say of itself, and what there is to say of torch and the GPUs.

    The key "place" holds the facts that ``placement.place_ranks`` decides by.
    """
    from ...guard import guarded, server

    server.start()  # before torch starts threads
    import torch
    import torch.distributed as dist

    from ...rank import gpus, patches
    from ...rank.gpus import nccl_version
    from ...rank.setup import describe
    from ...wire.encoding import encode

    process = describe()
    nccl = nccl_version()
    facts: dict[str, Any] = {
        "place": encode(process),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": list(nccl) if nccl else None,
        "gloo": dist.is_gloo_available(),
        "gpus": [],
        "no_gpu": gpus.no_gpu_reason(),
        "patches": [(patch.library, patch.what) for patch in patches.ORDERED],
    }
    guarded.install()
    facts["open"] = guarded.open_reason()
    for index in range(len(process.gpus)):
        gpu = torch.cuda.get_device_properties(index)
        facts["gpus"].append({"name": gpu.name, "bytes": gpu.total_memory})
    facts["torchvision"] = None
    if find_spec("torchvision") is None:  # it comes with an extra
        return facts
    try:
        import torchvision
    except Exception as error:  # a build for another torch fails in ways of its own
        facts["torchvision_problem"] = f"{type(error).__name__}: {error}"
    else:
        facts["torchvision"] = torchvision.__version__
    return facts


if __name__ == "__main__":
    # The last line, whatever a library says before.
    sys.stdout.write("\n" + json.dumps(gather()) + "\n")
