"""Start a lab, finish one all_reduce, answer with the ranks' process ids, and stay idle.

Argument: number of ranks. Ends when stdin does.
"""

import json
import sys

import labkit


def all_reduce():
    """Add one up over all ranks; return this rank's process id."""
    import os

    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(1))
    return os.getpid()


if __name__ == "__main__":
    with labkit.start(int(sys.argv[1])) as lab:
        print("BENCH", json.dumps(lab.run(all_reduce)), flush=True)
        sys.stdin.read()
