"""Say who this process is. One script, four ways to start it:

    python hello.py --way=Process        two processes, by torch.multiprocessing.Process
    python hello.py --way=spawn          two processes, by torch.multiprocessing.spawn
    python -m torch.distributed.launch --nproc-per-node=2 hello.py        (deprecated)
    torchrun --nproc-per-node=2 hello.py

Each process adds its rank + 1 to the sum of all: with NCCL where there is a GPU for each of them,
else on the CPU with gloo. With --late the ranks behind rank 0 do not come to the sum.
"""

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def hello(local_rank, seconds=60, late=False, **who):
    """Join the group, add up, say so."""
    device = join(local_rank, seconds, **who)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total = torch.tensor(rank + 1, device=device)
    if late and rank > 0:
        time.sleep(600)
    dist.all_reduce(total)
    total = total.item()  # waits for a GPU
    print(f"rank {rank} of {world_size}, local rank {local_rank}: the sum is {total}\n", end="")
    dist.destroy_process_group()


def join(local_rank, seconds, **who):
    """Form the group, as `who` says or else by env://; return the device of this process."""
    limit = timedelta(seconds=seconds)
    if torch.cuda.device_count() < int(os.environ["LOCAL_WORLD_SIZE"]):  # NCCL wants one for each
        dist.init_process_group("gloo", timeout=limit, **who)
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)  # before anything else uses a GPU
    device = torch.device("cuda", local_rank)
    dist.init_process_group("cpu:gloo,cuda:nccl", timeout=limit, device_id=device, **who)
    return device


def child(rank, world_size, port, seconds, late):
    """Do what a process of this script's own does: nobody has set RANK for it."""
    store = dist.TCPStore("localhost", port, timeout=timedelta(seconds=seconds))
    hello(rank, seconds, late, store=store, rank=rank, world_size=world_size)


def start(way, processes, world_size, seconds, late):
    """Open a store at a free port, then start the processes, and wait for them."""
    store = dist.TCPStore("localhost", 0, is_master=True)
    facts = (world_size, store.port, seconds, late)
    os.environ["LOCAL_WORLD_SIZE"] = str(processes)  # as torchrun does
    if way == "spawn":
        mp.spawn(child, args=facts, nprocs=processes)  # puts the rank in front
    else:
        ranks = [mp.Process(target=child, args=(rank, *facts)) for rank in range(processes)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


if __name__ == "__main__":  # a spawned process imports this file: it must not start any itself
    mp.set_start_method("spawn")  # CUDA cannot be used in a fork of a process that has used it
    parser = argparse.ArgumentParser()
    parser.add_argument("--local-rank", type=int, default=os.environ.get("LOCAL_RANK"))
    parser.add_argument("--way", choices=["Process", "spawn"])
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60, help="to wait for other ranks")
    parser.add_argument("--late", action="store_true", help="only rank 0 comes to the sum")
    options = parser.parse_args()
    if options.way:
        start(options.way, 2, options.world_size, options.seconds, options.late)
    else:
        hello(options.local_rank)
