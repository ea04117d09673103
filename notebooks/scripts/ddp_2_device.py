"""Train a small network; start it with torchrun --standalone --nproc-per-node=2."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from digits import make_model, read_digits, sums_of
from torch.utils.data import DataLoader, RandomSampler

BATCH_SIZE = 64  # images per step


def save(path, model, optimizer, epoch):
    """Replace the file: a reader finds the whole new one or the whole old one."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, unfinished := f"{path}.{os.getpid()}")
    os.replace(unfinished, path)


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
    if path.exists():  # go on from there
        state = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]
    dist.barrier()  # all have looked for the file: now it may change
    for epoch in range(done, epochs):
        sampler = RandomSampler(data, generator=torch.Generator().manual_seed(epoch))
        loader = DataLoader(data, BATCH_SIZE, sampler=sampler, drop_last=True)
        total = torch.zeros((), device=device)
        for batch in loader:
            loss = sums_of(model, batch, device)[0]
            (loss / BATCH_SIZE).backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
        print(f"epoch {epoch + 1}: loss {total.item() / BATCH_SIZE / len(loader):.3f}")
        save(path, model, optimizer, epoch + 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--save", type=Path, default=Path("digits.pt"))
    options = parser.parse_args()
    train(options.epochs, options.save)
