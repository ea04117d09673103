"""Have a zygote; for every line on stdin start a lab, finish one all_reduce, and answer with the
seconds that took; then stop the lab.

Argument: number of ranks.
"""

import json
import sys
import time

import labkit
from labkit.launch.zygote_line import READY
from labkit.launch.zygote_owner import Zygote


def check():
    """Return the sum of ones over all ranks."""
    import torch
    import torch.distributed as dist

    x = torch.ones(1)
    dist.all_reduce(x)
    return x.item()


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    zygote = Zygote.start()
    assert zygote is not None, "this system cannot fork safely"
    while not (zygote.folder.path / READY).exists():
        time.sleep(0.05)
    labkit.start(1).stop()  # what this process itself imports for its first lab
    for _ in sys.stdin:
        began = time.perf_counter()
        with labkit.start(ranks) as lab:
            totals = lab.run(check)
            seconds = time.perf_counter() - began
        assert totals == [ranks] * ranks, totals
        print("BENCH", json.dumps(seconds), flush=True)
    zygote.close()
