"""Run a function on ranks with ``torch.multiprocessing.spawn``.

Arguments: number of ranks, and what the function does (see ``protocol.play``).
"""

import sys

import torch.distributed as dist
import torch.multiprocessing as mp
from protocol import free_port, play


def train(rank, ranks, address, what):
    """Be one rank."""
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    play(what)


if __name__ == "__main__":
    ranks, what = int(sys.argv[1]), sys.argv[2]
    mp.spawn(train, args=(ranks, f"tcp://127.0.0.1:{free_port()}", what), nprocs=ranks)
