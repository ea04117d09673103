"""Train a small network, save it after every step, and after a restart go on from there.

    torchrun --standalone --nproc-per-node=2 --max-restarts=3 elastic.py FOLDER [STEPS [PAUSE]]

All ranks must see FOLDER. There may be more or fewer of them after a restart: in each step they
share the same 16 rows. PAUSE is in seconds, after each step. With NCCL where a node has a GPU for
each of its processes (then all nodes must), otherwise on the CPU with gloo. Set
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: without it a restart may find the addresses of the dead.

It has no handler of SIGTERM, with which torchrun also ends the workers before each restart: every
step is saved, so a rank that dies in a step loses that step.
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


def flush(folder):
    home = os.open(folder, os.O_RDONLY)
    os.fsync(home)
    os.close(home)


def train(folder, steps=20, pause=0.1):
    rank, world_size, path = dist.get_rank(), dist.get_world_size(), f"{folder}/last.pt"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double().to(device)
    ids = [device.index] if device.type == "cuda" else None
    net = nn.parallel.DistributedDataParallel(model, device_ids=ids)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    state = {"done": 0}
    if os.path.exists(path):  # after a restart: every rank reads it
        state = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(state["done"], steps):
        x, y = (rows[rank::world_size].to(device) for rows in rows_of(step))  # my share
        optimizer.zero_grad()
        ((net(x) - y).square().sum() * world_size / 16).backward()  # DDP averages over ranks
        optimizer.step()
        print(f"step {step + 1} by rank {rank} of {world_size}, process {os.getpid()}\n", end="")
        if rank == 0:
            # The model's state, not net's: it can be loaded without DDP.
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            with open(f"{path}.tmp", "wb") as file:
                torch.save({**state, "done": step + 1}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{path}.tmp", path)  # all or nothing
            flush(folder)  # the new name, too
        dist.barrier()  # it is saved
        time.sleep(pause)
    if rank == 0:
        x, y = (rows.to(device) for rows in rows_of(-1))
        loss = (model(x) - y).square().mean().item()
        numbers = (p.detach().cpu().numpy() for p in model.parameters())
        weights = zlib.crc32(b"".join(values.tobytes() for values in numbers))
        print(f"done: {steps} steps, loss {loss!r}, weights {weights:08x}\n", end="")


torch.set_num_threads(1)
where, device = {"backend": "gloo"}, torch.device("cpu")
if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):  # NCCL needs one per process
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    where = {"backend": "nccl", "device_id": device}
dist.init_process_group(**where, timeout=timedelta(seconds=30))
train(sys.argv[1], *map(int, sys.argv[2:3]), *map(float, sys.argv[3:4]))
dist.destroy_process_group()
