"""Start a lab and finish one all_reduce; answer with the moment it had finished on rank 0.

Argument: number of ranks. This is what a notebook's first two cells do.
"""

import json
import sys

import labkit


def all_reduce():
    """Add one up over all ranks; return (sum, moment). No tensor: the notebook needs no torch."""
    import time

    import torch
    import torch.distributed as dist

    x = torch.ones(1)
    dist.all_reduce(x)
    return x.item(), time.time()


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    with labkit.start(ranks) as lab:
        total, moment = lab.run(all_reduce)[0]
        assert total == ranks, total
        print("BENCH", json.dumps(moment), flush=True)
