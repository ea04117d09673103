"""The watch begins when a script has imported torch, and not before."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from labkit.rank.torchrun import watch
watch.begin = lambda *given: print(given, hasattr(sys.modules["torch"], "ones"))
watch.begin_with_torch("socket", "In[7]")
import json
print("torch" in sys.modules)
import torch
import torch.distributed
print(torch.__spec__.loader.get_source("torch") is not None)
"""


def test_the_watch_begins_once_when_torch_is_there() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["False", "('socket', 'In[7]', None) True", "True"]
