"""Keep what each rank did when it crashed: import this in the process that ranks are forked from.

``faulthandler`` writes the Python stack of every thread; a thread without one is NCCL's, CUDA's or
torch's own. The runner (``tests.gpu.run``) names the folder and brings the files back.
"""

from __future__ import annotations

import faulthandler
import os

FOLDER = "LABKIT_GPU_CRASHES"


def keep() -> None:
    """Write to a file of this process if it crashes."""
    if folder := os.environ.get(FOLDER):
        path = os.path.join(folder, f"crash-{os.getpid()}.log")
        faulthandler.enable(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


os.register_at_fork(after_in_child=keep)
