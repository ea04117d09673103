"""Train a small network on any number of nodes, and lose all of it when a process dies."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH_SIZE = 64  # rows per step


def make_data():
    """Return 1,024 points of the plane, each with the number of the ring that it is in."""
    points = torch.randn(1024, 2, generator=torch.Generator().manual_seed(1))
    return TensorDataset(points, points.norm(dim=1).mul(2).long().clamp(max=3))


def save(checkpoint, model, optimizer, epoch):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, checkpoint)


def main(epochs, checkpoint):
    torch.manual_seed(0)
    device = torch.device("cpu")
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):  # one for each process
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    data = make_data()
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    done = 0  # epochs
    ddp = DDP(model)
    rows = BATCH_SIZE // dist.get_world_size()  # on each process
    sampler = DistributedSampler(data)
    for epoch in range(done, epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for points, rings in DataLoader(data, batch_size=rows, sampler=sampler):
            points, rings = points.to(device), rings.to(device)
            loss = nn.functional.cross_entropy(ddp(points), rings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(points)
        dist.all_reduce(total)
        if int(os.environ["LOCAL_RANK"]) == 0:
            print(f"epoch {epoch + 1}: loss {total.item() / len(data):.3f}")
            save(checkpoint, model, optimizer, epoch + 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--checkpoint", type=Path, default=Path("last.pt"))
    main(**vars(parser.parse_args()))
