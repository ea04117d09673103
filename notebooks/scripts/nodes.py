"""Say which node a rank is on, and time the same all_reduce within each node and across all.

    torchrun --nnodes=2 ... nodes.py

What is printed is one line of JSON from each rank. With NCCL where a node has a GPU for each of
its processes (then all nodes must), else on the CPU with gloo.
"""

import json
import os
import socket
import time

import torch
import torch.distributed as dist


def seconds(group):
    """Return the time of an all_reduce of 1 MiB, the best of three."""
    x, times = torch.ones(2**18, device=device), []
    for _ in range(3):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(x, group=group)
        x[0].item()  # waits for a GPU
        times.append(time.perf_counter() - began)
    return min(times)


backend, device = "gloo", torch.device("cpu")
if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):  # NCCL wants one for each
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    backend, device = "nccl", torch.device("cuda", int(os.environ["LOCAL_RANK"]))
dist.init_process_group(backend)
rank, world_size = dist.get_rank(), dist.get_world_size()
node = int(os.environ["GROUP_RANK"])  # torchrun's name for the number of a node
node_of = [None] * world_size
dist.all_gather_object(node_of, node)
members = [[r for r in range(world_size) if node_of[r] == k] for k in range(max(node_of) + 1)]
groups = [dist.new_group(ranks) for ranks in members]  # every rank makes all of them
total = torch.tensor(rank + 1, device=device)
dist.all_reduce(total)
facts = {"rank": rank, "world_size": world_size, "node": node, "sum": total.item()}
facts |= {"local_rank": int(os.environ["LOCAL_RANK"]), "host": socket.gethostname()}
facts |= {"within": seconds(groups[node]), "across": seconds(dist.group.WORLD)}
print(f"{json.dumps(facts)}\n", end="")
dist.destroy_process_group()
