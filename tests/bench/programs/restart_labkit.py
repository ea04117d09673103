"""Start a lab; for every line on stdin restart it and answer with the seconds that took.

Argument: number of ranks.
"""

import json
import sys
import time

import labkit


def check():
    """Return (pid, sum of ones over all ranks)."""
    import os

    import torch
    import torch.distributed as dist

    x = torch.ones(1)
    dist.all_reduce(x)
    return os.getpid(), x.item()


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    with labkit.start(ranks) as lab:
        before = lab.run(check)
        for _ in sys.stdin:
            began = time.perf_counter()
            lab.restart()
            seconds = time.perf_counter() - began
            after = lab.run(check)
            assert not {pid for pid, _ in before} & {pid for pid, _ in after}, "the same processes"
            assert {total for _, total in after} == {ranks}, after
            before = after
            print("BENCH", json.dumps(seconds), flush=True)
