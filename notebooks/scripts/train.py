"""Train a network on handwritten digits, on any number of processes: a recipe to take home.

    python train.py                                        one process
    torchrun --standalone --nproc-per-node=4 train.py      four on this machine

It needs torch, tqdm and the four files of MNIST in FOLDER/MNIST/raw (--data FOLDER). The marks
(1) to (6) are the points of the checklist in notebook 08.
"""

import argparse
import os
import zlib
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset
from tqdm import tqdm

LR_BATCH = 64  # the batch that --lr is meant for
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
MEAN, SPREAD = 0.1307, 0.3081  # of MNIST's pixels, from 0 to 1
DATA = Path(__file__).resolve().parents[2] / "data"


def read_options(words=None):
    parser = argparse.ArgumentParser(description="Train on MNIST with any number of ranks.")
    add, switch = parser.add_argument, argparse.BooleanOptionalAction
    add("--epochs", type=int, default=6)
    add("--batch-size", type=int, default=64, help="images in a step, of all ranks together")
    add("--lr", type=float, default=0.05, help=f"learning rate for a batch of {LR_BATCH}")
    add("--scale-lr", action=switch, default=True, help="let it grow with the batch")
    add("--warmup", type=float, default=0.5, help="epochs until the full rate")
    add("--shift", type=int, default=1, help="move training images by up to so many pixels")
    add("--precision", choices=PRECISIONS, default="float32")
    add("--seed", type=int, default=0)
    add("--workers", type=int, default=0, help="processes that load data, for each rank")
    add("--bar", action=switch, help="progress bar (by default on a terminal only)")
    add("--data", type=Path, default=DATA)
    add("--save", type=Path, help="file for a checkpoint after each epoch")
    return parser.parse_args(words)


@contextmanager
def process_group():
    """(1) Form the group and leave it, whatever happens. One that is there already is used."""
    if dist.is_initialized():  # in a notebook: it belongs to somebody else
        yield
        return
    gpu_each = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    backend = "nccl" if gpu_each else "gloo"
    if "RANK" in os.environ:  # torchrun has set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
        dist.init_process_group(backend, init_method="env://")
    else:  # one process alone needs no address
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def pick_device():
    if not torch.cuda.is_available():
        return torch.device("cpu")
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


class Digits(Dataset):
    """MNIST, or the part of it that is in the folder. Images are float32, (1, 28, 28)."""

    def __init__(self, folder, train, shift=0):
        def read(name, header):
            content = bytearray((Path(folder) / "MNIST" / "raw" / name).read_bytes())
            return torch.frombuffer(content, dtype=torch.uint8, offset=header)

        part = "train" if train else "t10k"
        self.images = read(f"{part}-images-idx3-ubyte", header=16).view(-1, 1, 28, 28)
        self.labels = read(f"{part}-labels-idx1-ubyte", header=8).long()
        self.shift = shift

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = (self.images[index] / 255 - MEAN) / SPREAD
        if self.shift:  # at random: each rank, and each worker of it, needs a seed of its own
            moves = torch.randint(-self.shift, self.shift + 1, (2,)).tolist()
            image = image.roll(moves, dims=(1, 2))
        return image, self.labels[index]


def make_loader(train_set, options):
    """(3) Deal the training set: the same number of full batches for every rank."""
    return DataLoader(
        train_set,
        batch_size=options.batch_size // dist.get_world_size(),
        sampler=DistributedSampler(train_set, shuffle=True, seed=options.seed, drop_last=True),
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        generator=torch.Generator().manual_seed(rank_seed(options)),  # the workers' seeds
        pin_memory=torch.cuda.is_available(),  # a GPU can fetch it while it computes
    )


def rank_seed(options):
    return 1000 * options.seed + dist.get_rank()


def make_model():
    features = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)]
    features += [nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*features, nn.Linear(32 * 5 * 5, 10))


def wrap(model, device):
    """(2) Move, convert, wrap: DDP comes last, when the parameters are what they will be."""
    model = model.to(device)
    if device.type == "cuda":  # changes nothing in a model without BatchNorm
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return DDP(model, device_ids=[device.index] if device.type == "cuda" else None)


def make_schedule(optimizer, steps, warmup):
    """Raise the rate to the full one (warm-up), then lower it to 0 in a straight line."""

    def factor(step):
        return min((step + 1) / max(warmup, 1), (steps - step) / max(steps - warmup, 1))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def train_epoch(net, loader, optimizer, schedule, scaler, device, options):
    """Return the loss of each step, averaged over the ranks."""
    dtype, losses = PRECISIONS[options.precision], []
    hidden = dist.get_rank() != 0 or (None if options.bar is None else not options.bar)  # (5)
    for images, labels in tqdm(loader, leave=False, disable=hidden):
        images, labels = (part.to(device, non_blocking=True) for part in (images, labels))
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):  # (2)
            loss = F.cross_entropy(net(images), labels)
        scaler.scale(loss).backward()  # (4) in float16; otherwise the scaler does nothing
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    dist.all_reduce(losses)  # every rank, once an epoch
    return (losses / dist.get_world_size()).tolist()


@torch.no_grad()
def evaluate(model, test_set, device):
    """(6) Return accuracy, mean loss and number of images, each image counted once."""
    share = Subset(test_set, range(dist.get_rank(), len(test_set), dist.get_world_size()))
    sums = torch.zeros(3, dtype=torch.float64, device=device)  # correct, loss, images
    model.eval()
    for images, labels in DataLoader(share, batch_size=250):
        scores, labels = model(images.to(device)), labels.to(device)
        sums[0] += (scores.argmax(dim=1) == labels).sum()
        sums[1] += F.cross_entropy(scores, labels, reduction="sum")
        sums[2] += len(labels)
    model.train()
    dist.all_reduce(sums)  # sums, not averages: shares may differ in length
    correct, loss, images = sums.tolist()
    return correct / images, loss / images, int(images)


def say(text):
    """(5) Print on rank 0 only."""
    if dist.get_rank() == 0:
        tqdm.write(text)


def save(path, model, optimizer, epoch):
    """(5) Write on rank 0 only; nobody goes on before the file is there."""
    if dist.get_rank() == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        unfinished = path.with_name(path.name + ".part")
        torch.save(state, unfinished)
        unfinished.replace(path)
    dist.barrier()


def checksum(model):
    """Return eight characters, the same for two models only if they are equal bit for bit."""
    vector = nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    return f"{zlib.crc32(vector.numpy().tobytes()):08x}"


def train(options, device):
    """Train and test; return the model, and the results, which are the same on every rank."""
    torch.manual_seed(rank_seed(options))
    train_set = Digits(options.data, train=True, shift=options.shift)
    test_set = Digits(options.data, train=False)
    loader = make_loader(train_set, options)
    net = wrap(make_model(), device)  # from here on rank 0's weights are everybody's
    model, batch = net.module, loader.batch_size * dist.get_world_size()
    lr = options.lr * (batch / LR_BATCH if options.scale_lr else 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    schedule = make_schedule(optimizer, options.epochs * len(loader), options.warmup * len(loader))
    scaler = torch.amp.GradScaler(device.type, enabled=options.precision == "float16")
    say(f"{dist.get_world_size()} ranks, {batch} images a step, learning rate {lr:g}")
    results = {"losses": [], "accuracies": []}
    for epoch in range(1, options.epochs + 1):
        loader.sampler.set_epoch(epoch)  # (3) another order in each epoch
        results["losses"] += train_epoch(net, loader, optimizer, schedule, scaler, device, options)
        accuracy, loss, images = evaluate(model, test_set, device)
        results["accuracies"].append(accuracy)
        say(f"epoch {epoch}: {accuracy:.2%} of {images:,} test images, loss {loss:.4f}")
        if options.save:
            save(options.save, model, optimizer, epoch)
    results |= {"accuracy": accuracy, "loss": loss, "weights": checksum(model)}
    say(f"result: accuracy {accuracy!r}, loss {loss!r}, weights {results['weights']}")
    return model, results


def main(words=None, device=None):
    options = read_options(words)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # ranks share the cores; and sums are the same wherever it runs
    try:
        with process_group():
            return train(options, device or pick_device())
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
