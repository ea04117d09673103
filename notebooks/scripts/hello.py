"""Say who this process is. One script, four ways to start it:

    python hello.py --way=Process        two processes, by torch.multiprocessing.Process
    python hello.py --way=spawn          two processes, by torch.multiprocessing.spawn
    python -m torch.distributed.launch --nproc-per-node=2 hello.py        (deprecated)
    torchrun --nproc-per-node=2 hello.py

Each process adds its rank + 1 to the sum of all.
"""

import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def hello(local_rank, seconds=60, **who):
    """Form the group, as `who` says or else by env://; add up; say so."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds), **who)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = torch.tensor(rank + 1)
    dist.all_reduce(total)
    print(f"rank {rank} of {world_size}, local rank {local_rank}: the sum is {total}\n", end="")
    dist.destroy_process_group()


def child(rank, world_size, port, seconds):
    """Do what a process of this script's own does: nobody has set RANK for it."""
    store = dist.TCPStore("localhost", port, timeout=timedelta(seconds=seconds))
    hello(rank, seconds, store=store, rank=rank, world_size=world_size)


def start(way, processes, world_size, seconds):
    """Open a store at a free port, then start the processes, and wait for them."""
    store = dist.TCPStore("localhost", 0, is_master=True)
    facts = (world_size, store.port, seconds)
    if way == "spawn":
        mp.spawn(child, args=facts, nprocs=processes)  # puts the rank in front
    else:
        ranks = [mp.Process(target=child, args=(rank, *facts)) for rank in range(processes)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


if __name__ == "__main__":  # a spawned process imports this file: it must not start any itself
    mp.set_start_method("spawn")  # the only one that CUDA can stand
    parser = argparse.ArgumentParser()
    parser.add_argument("--local-rank", type=int, default=os.environ.get("LOCAL_RANK"))
    parser.add_argument("--way", choices=["Process", "spawn"])
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60, help="to wait for other ranks")
    options = parser.parse_args()
    if options.way:
        start(options.way, 2, options.world_size, options.seconds)
    else:
        hello(options.local_rank)
