"""Train a small network, save it after every step, and after a restart go on from there.

    torchrun --standalone --nproc-per-node=2 --max-restarts=3 elastic.py FOLDER [STEPS [PAUSE]]

All ranks must see FOLDER. There may be more or fewer of them after a restart: in each step they
share the same 16 rows. PAUSE is in seconds, after each step.
"""

import os
import sys
import time
import zlib
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def rows_of(step):
    torch.manual_seed(step)  # so there is no state of random numbers to save
    x = torch.randn(16, 8, dtype=torch.float64)
    return x, x.sin().sum(1, keepdim=True)


def train(folder, steps=20, pause=0.1):
    rank, world_size, path = dist.get_rank(), dist.get_world_size(), f"{folder}/last.pt"
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    state = {"done": 0}
    if os.path.exists(path):  # after a restart: every rank reads it
        state = torch.load(path, weights_only=True)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(state["done"], steps):
        x, y = (rows[rank::world_size] for rows in rows_of(step))  # my share
        optimizer.zero_grad()
        ((net(x) - y).square().sum() * world_size / 16).backward()  # DDP averages over ranks
        optimizer.step()
        if rank == 0:
            state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
            with open(f"{path}.tmp", "wb") as file:
                torch.save({**state, "done": step + 1}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{path}.tmp", path)  # all or nothing
        print(f"step {step + 1} by rank {rank} of {world_size}, process {os.getpid()}\n", end="")
        time.sleep(pause)
    if rank == 0:
        loss = (net.module(rows_of(-1)[0]) - rows_of(-1)[1]).square().mean().item()
        weights = zlib.crc32(b"".join(p.detach().numpy().tobytes() for p in net.parameters()))
        print(f"done: {steps} steps, loss {loss!r}, weights {weights:08x}\n", end="")


torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=30))
train(sys.argv[1], *map(int, sys.argv[2:3]), *map(float, sys.argv[3:4]))
dist.destroy_process_group()
