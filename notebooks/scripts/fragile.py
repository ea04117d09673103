"""Train a small network on any number of nodes, and lose all of it when a process dies."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from digits import make_model, read_digits, sums_of
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

BATCH_SIZE = 64  # images per step


def save(path, model, optimizer, epoch):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, path)


def train(epochs, path):
    torch.manual_seed(0)
    device = torch.device("cpu")
    if gpus := torch.cuda.device_count():
        if gpus < int(os.environ["LOCAL_WORLD_SIZE"]):
            raise SystemExit(f"Visible GPUs: {gpus}, fewer than processes on this node.")
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpus else "gloo")
    data = read_digits("train")
    model = make_model(dropout=0).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    done = 0  # epochs
    ddp = DDP(model)
    share = BATCH_SIZE // dist.get_world_size()  # of each process
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, share, sampler=sampler, drop_last=True)
    for epoch in range(done, epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for batch in loader:
            loss = sums_of(ddp, batch, device)[0]
            (loss / share).backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
        dist.all_reduce(total)
        if int(os.environ["LOCAL_RANK"]) == 0:
            print(f"epoch {epoch + 1}: loss {total.item() / BATCH_SIZE / len(loader):.3f}")
            save(path, model, optimizer, epoch + 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--save", type=Path, default=Path("digits.pt"))
    options = parser.parse_args()
    train(options.epochs, options.save)
