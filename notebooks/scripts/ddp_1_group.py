"""Train a small network; start it with torchrun --standalone --nproc-per-node=2."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

BATCH_SIZE = 64  # rows per step


def make_data():
    """Return 1,024 points of the plane, each with the number of the ring that it is in."""
    points = torch.randn(1024, 2, generator=torch.Generator().manual_seed(1))
    return TensorDataset(points, points.norm(dim=1).mul(2).long().clamp(max=3))


def save(checkpoint, model, optimizer, epoch):
    """Replace the file: whoever reads it finds all of the new one, or all of the old one."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, unfinished := f"{checkpoint}.{os.getpid()}")
    os.replace(unfinished, checkpoint)


def main(epochs, checkpoint):
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("gloo")
    data = make_data()
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    done = 0  # epochs
    if checkpoint.exists():  # go on from there
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]
    dist.barrier()  # all have looked for the checkpoint: now it may change
    for epoch in range(done, epochs):
        sampler = RandomSampler(data, generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros((), device=device)
        for points, rings in DataLoader(data, batch_size=BATCH_SIZE, sampler=sampler):
            points, rings = points.to(device), rings.to(device)
            loss = nn.functional.cross_entropy(model(points), rings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(points)
        print(f"epoch {epoch + 1}: loss {total.item() / len(data):.3f}")
        save(checkpoint, model, optimizer, epoch + 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--checkpoint", type=Path, default=Path("last.pt"))
    main(**vars(parser.parse_args()))
