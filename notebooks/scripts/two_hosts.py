"""Time three all-reduces of 4 MiB on two hosts with two ranks each, for notebook 20.

With gloo, from CPU to CPU: what is timed is the cable, and both hosts may be one machine.

    python two_hosts.py FOLDER PLACE

PLACE is 0 or 1 on the first host, 2 or 3 on the second. The processes meet through files in
FOLDER. Each prints the seconds of the three ways as JSON, the best of three rounds.
"""

import json
import sys
import time

import torch
import torch.distributed as dist

folder, place = sys.argv[1], int(sys.argv[2])
ones = torch.ones(2**20)  # 4 MiB


def join(name, rank):
    dist.init_process_group("gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=4)


def best(all_reduce):
    times = []
    for _ in range(3):
        x = ones.clone()
        dist.barrier()
        begin = time.perf_counter()
        all_reduce(x)
        times.append(time.perf_counter() - begin)
        assert x.eq(4).all()
    return min(times)


def two_levels(x):
    part = x.new_empty(len(x) // 2)
    dist.reduce_scatter_tensor(part, x, group=inside)
    dist.all_reduce(part, group=across)
    dist.all_gather_into_tensor(x, part, group=inside)


seconds = {}
join("contiguous", place)
inside = [dist.new_group(pair) for pair in ([0, 1], [2, 3])][place // 2]
across = [dist.new_group(pair) for pair in ([0, 2], [1, 3])][place % 2]
seconds["ring, neighbours together"] = best(dist.all_reduce)
seconds["two levels"] = best(two_levels)
dist.barrier()
dist.destroy_process_group()

join("alternating", [0, 2, 1, 3][place])
seconds["ring, hosts alternate"] = best(dist.all_reduce)
dist.barrier()
dist.destroy_process_group()
print(json.dumps(seconds))
