"""Import what the other programs import, so that the first of them finds it in the disk cache."""

import importlib
import json
import time

MODULES = (
    "torch.distributed.run",
    "torch.nn.parallel",
    "ipyparallel.controller.app",
    "ipyparallel.engine.app",
    "IPython.core.interactiveshell",
    "labkit.notebook.lab",
    "labkit.rank.preload",
)

if __name__ == "__main__":
    for module in MODULES:
        importlib.import_module(module)
    print("BENCH", json.dumps(time.time()), flush=True)
