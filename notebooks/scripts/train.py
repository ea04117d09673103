"""Train a network on handwritten digits, on any number of processes: a recipe to take home.

    python train.py                                        one process
    torchrun --standalone --nproc-per-node=4 train.py      four on this machine
    torchrun ... train.py --save=digits.pt --resume        goes on where the last run ended

It needs torch, tqdm and the four files of MNIST in FOLDER/MNIST/raw (--data FOLDER). Read `train`
first, near the end. A mark such as (4) names the section of notebook 09 that explains it.
"""

import argparse
import os
import resource
import sys
import time
import zlib
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset
from tqdm import tqdm

LR_BATCH = 64  # the batch that --lr is meant for
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
MEAN, DEVIATION = 0.1307, 0.3081  # of MNIST's pixels, from 0 to 1
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", 0))  # on this machine; set by torchrun
LOCAL_WORLD_SIZE = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
DATA = Path(__file__).resolve().parents[2] / "data"
# Options that a resumed run may change:
FREE = {"accumulate", "tf32", "compile", "workers", "pin_memory", "bar", "data", "save", "resume"}


def read_options(argv=None):
    parser = argparse.ArgumentParser(description="Train on MNIST with any number of ranks.")
    switch = argparse.BooleanOptionalAction
    what = parser.add_argument_group("what is trained (a resumed run must have the same)")
    what.add_argument("--epochs", type=int, default=6)
    what.add_argument("--batch-size", type=int, default=64, help="images per step, of all ranks")
    what.add_argument("--lr", type=float, default=0.05, help=f"for a batch of {LR_BATCH}")
    what.add_argument("--scale-lr", action=switch, default=True, help="lr grows with the batch")
    what.add_argument("--warmup", type=float, default=1, help="epochs until the full rate")
    what.add_argument("--clip", type=float, default=1, help="largest norm of the gradient; 0: any")
    what.add_argument("--shift", type=int, default=1, help="move images by up to this many pixels")
    what.add_argument("--precision", choices=PRECISIONS, default="float32")
    what.add_argument("--sync-batchnorm", action=switch, default=False)
    what.add_argument("--seed", type=int, default=0)
    how = parser.add_argument_group("how it is run (free to change, like the number of ranks)")
    how.add_argument("--accumulate", type=int, default=1, help="micro-batches per step")
    how.add_argument("--tf32", action=switch, default=False, help="faster products on GPUs")
    how.add_argument("--compile", action=switch, default=False)
    how.add_argument("--workers", type=int, default=0, help="processes per rank that load data")
    how.add_argument("--pin-memory", action=switch, default=torch.cuda.is_available())
    how.add_argument("--bar", action=switch, default=sys.stderr.isatty(), help="progress bar")
    how.add_argument("--data", type=Path, default=DATA)
    how.add_argument("--save", type=Path, metavar="FILE", help="checkpoint after each epoch")
    how.add_argument("--resume", action=switch, default=False, help="from --save, if it exists")
    options = parser.parse_args(argv)
    options.recipe = {k: v for k, v in vars(options).items() if k not in FREE}
    return options


def check(options, images):
    """Refuse what cannot be trained, in one sentence."""
    for name in ("epochs", "batch_size", "accumulate"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1.")
    batch, ranks = options.batch_size, dist.get_world_size()
    if batch % (ranks * options.accumulate):
        parts = f"{ranks} ranks with --accumulate={options.accumulate}"
        raise ValueError(f"--batch-size={batch} cannot be divided evenly among {parts}.")
    if batch > images:
        raise ValueError(f"--batch-size={batch} is more than the {images:,} training images.")
    if options.resume and not options.save:
        raise ValueError("--resume needs --save=FILE, the checkpoint to go on from.")


def pick_device():
    """(3) Return this rank's device. Call it before (2): NCCL uses the current GPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", LOCAL_RANK % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


@contextmanager
def process_group(device):
    """(2) Form the group and leave it, whatever happens. One that exists already is used."""
    if dist.is_initialized():  # in a notebook: whoever formed it will leave it
        yield
        return
    where = {"backend": "gloo"}
    if device.type == "cuda" and torch.cuda.device_count() >= LOCAL_WORLD_SIZE:
        where = {"backend": "nccl", "device_id": device}  # NCCL needs a GPU per process
    if "RANK" not in os.environ:  # one process alone needs no address
        where |= {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(**where)  # reads what torchrun has set: RANK, MASTER_ADDR, ...
    try:
        yield
    finally:
        dist.destroy_process_group()


def seed_epoch(options, epoch):
    """(8) Give every rank random numbers of its own in each epoch; its workers are seeded by them.

    An epoch is then the same in a resumed run, so no state of random numbers has to be saved.
    """
    torch.manual_seed(1_000_000 * options.seed + 1_000 * epoch + dist.get_rank())


class Digits(Dataset):
    """MNIST, or the part of it that is in the folder. Images are float32, (1, 28, 28)."""

    def __init__(self, folder, train, shift=0):
        def read(name, header):
            path = Path(folder) / "MNIST" / "raw" / name
            if not path.exists():
                raise FileNotFoundError(f"There is no {path}: pass its folder as --data=FOLDER.")
            return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8, offset=header)

        part = "train" if train else "t10k"
        self.images = read(f"{part}-images-idx3-ubyte", header=16).view(-1, 1, 28, 28)
        self.labels = read(f"{part}-labels-idx1-ubyte", header=8).long()
        self.shift = shift

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = (self.images[index] / 255 - MEAN) / DEVIATION
        if self.shift:
            moves = torch.randint(-self.shift, self.shift + 1, (2,)).tolist()
            image = image.roll(moves, dims=(1, 2))
        return image, self.labels[index]


def make_loaders(train_set, test_set, options):
    """(4) Share both sets among the ranks; for training, all have equally many batches."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    micro_batch = options.batch_size // ranks // options.accumulate
    sampler = DistributedSampler(train_set, shuffle=True, seed=options.seed, drop_last=True)
    share = Subset(test_set, range(rank, len(test_set), ranks))
    both = {"num_workers": options.workers, "pin_memory": options.pin_memory}
    return (
        DataLoader(train_set, batch_size=micro_batch, sampler=sampler, drop_last=True, **both),
        DataLoader(share, batch_size=250, **both),
    )


def make_model():
    features = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)]
    features += [nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*features, nn.Linear(32 * 5 * 5, 10))


def wrap(model, device, options):
    """(5) Move, convert, wrap: DDP comes last, when the parameters are what they will be."""
    model = model.to(device)
    if options.sync_batchnorm:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    net = DDP(model, device_ids=[device.index] if device.type == "cuda" else None)
    if options.compile:
        net.compile()
    return net


def make_schedule(optimizer, steps, warmup):
    """Raise the rate to the full one (warm-up), then lower it to 0 in a straight line."""

    def factor(step):
        return min((step + 1) / max(warmup, 1), (steps - step) / max(steps - warmup, 1))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def predict(model, batch, device, options, reduction="mean"):
    """(5) Return the loss, the scores and the labels of a batch, computed under autocast."""
    images, labels = (part.to(device, non_blocking=options.pin_memory) for part in batch)
    dtype = PRECISIONS[options.precision]
    with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
        scores = model(images)
        return F.cross_entropy(scores, labels, reduction=reduction), scores, labels


def update(net, optimizer, schedule, scaler, options):
    """(5) Unscale, clip, step. In float32 and bfloat16 the scaler does nothing."""
    scale = scaler.get_scale()
    scaler.unscale_(optimizer)
    if options.clip > 0:
        nn.utils.clip_grad_norm_(net.parameters(), options.clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    if scaler.get_scale() >= scale:  # it falls only where an overflow made the scaler skip the step
        schedule.step()


def train_epoch(net, loader, optimizer, schedule, scaler, device, options):
    """Return the loss of each step, averaged over the ranks."""
    hidden = dist.get_rank() != 0 or not options.bar  # (6)
    losses, micro_batches = [], options.accumulate
    whole = len(loader) // micro_batches * micro_batches  # a last, shorter step is left out
    bar = tqdm(islice(loader, whole), total=whole, leave=False, disable=hidden)
    for number, batch in enumerate(bar, start=1):
        last = number % micro_batches == 0
        with nullcontext() if last else net.no_sync():  # one all-reduce per step, in its last part
            loss, *_ = predict(net, batch, device, options)
            scaler.scale(loss / micro_batches).backward()
        losses.append(loss.detach())
        if last:
            update(net, optimizer, schedule, scaler, options)
    losses = torch.stack(losses).view(-1, micro_batches).mean(dim=1)
    dist.all_reduce(losses)  # once per epoch
    return (losses / dist.get_world_size()).tolist()


@torch.no_grad()
def evaluate(model, loader, device, options):
    """(7) Return accuracy, mean loss and number of images, each image counted once."""
    for buffer in model.buffers():  # BatchNorm's differ between ranks: all test what rank 0 saves
        dist.broadcast(buffer, src=0)
    sums = torch.zeros(3, dtype=torch.float64, device=device)  # correct, loss, images
    model.eval()
    for batch in loader:
        loss, scores, labels = predict(model, batch, device, options, reduction="sum")
        sums[0] += (scores.argmax(dim=1) == labels).sum()
        sums[1] += loss
        sums[2] += len(labels)
    model.train()
    dist.all_reduce(sums)  # sums, not averages: shares may differ in length
    correct, loss, images = sums.tolist()
    return correct / images, loss / images, int(images)


def measure(started, device):
    """Return seconds since ``started`` and peak memory in MiB, of the rank that has the most."""
    if device.type == "cuda":
        memory = torch.cuda.max_memory_allocated(device) / 2**20
    else:  # of the whole process; Linux counts in KiB
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    most = torch.tensor([time.perf_counter() - started, memory], device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return most.tolist()


def say(text):
    """(6) Print on rank 0 only."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def save(options, parts, epoch, history):
    """(6) Write on rank 0 only, all or nothing; no rank goes on before the file exists."""
    if dist.get_rank() == 0:
        state = {name: part.state_dict() for name, part in parts.items()}
        state |= {"epoch": epoch, "history": history, "options": options.recipe}
        options.save.parent.mkdir(parents=True, exist_ok=True)
        unfinished = options.save.with_name(options.save.name + ".part")
        with unfinished.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(options.save)
    dist.barrier()


def load(options, parts, history):
    """Read the checkpoint on every rank; return the epochs done: 0 if there is none yet."""
    state = {"epoch": 0}
    if options.save.exists():
        state = torch.load(options.save, map_location="cpu", weights_only=True)
        then, now = state["options"], options.recipe
        if changed := [f"{k}={then.get(k)} (now {now[k]})" for k in now if now[k] != then.get(k)]:
            found = f"{options.save} was saved with {', '.join(changed)}"
            raise ValueError(f"{found}: pass the same options, or another --save.")
        for name, part in parts.items():
            part.load_state_dict(state[name])
        history.update(state["history"])
    epochs = [None] * dist.get_world_size()
    dist.all_gather_object(epochs, state["epoch"])
    if len(set(epochs)) > 1:
        raise ValueError(f"{options.save} is not the same file on every rank: epochs {epochs}.")
    return state["epoch"]


def checksum(model):
    """Return eight characters, the same for two models only if they are equal bit for bit."""
    vector = nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    return f"{zlib.crc32(vector.numpy().tobytes()):08x}"


def train(options, device):
    """Train and test; return the model, and the results, which are the same on every rank."""
    train_set = Digits(options.data, train=True, shift=options.shift)
    test_set = Digits(options.data, train=False)
    check(options, len(train_set))
    loader, test_loader = make_loaders(train_set, test_set, options)
    seed_epoch(options, 0)
    net = wrap(make_model(), device, options)  # from here on every rank has rank 0's weights
    lr = options.lr * (options.batch_size / LR_BATCH if options.scale_lr else 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    steps = len(loader) // options.accumulate  # per epoch
    schedule = make_schedule(optimizer, options.epochs * steps, options.warmup * steps)
    scaler = torch.amp.GradScaler(device.type, enabled=options.precision == "float16")
    parts = {"model": net.module, "optimizer": optimizer, "schedule": schedule, "scaler": scaler}
    history = {"losses": [], "accuracies": [], "test_losses": [], "images_per_second": []}
    done = load(options, parts, history) if options.resume else 0
    say(
        f"{dist.get_world_size()} ranks on {device.type}, {options.batch_size} images per step, "
        f"learning rate {lr:g}, {done} of {options.epochs} epochs done"
    )
    for epoch in range(done + 1, options.epochs + 1):
        seed_epoch(options, epoch)
        loader.sampler.set_epoch(epoch)  # (4) a new order in each epoch
        started = time.perf_counter()
        losses = train_epoch(net, loader, optimizer, schedule, scaler, device, options)
        seconds, memory = measure(started, device)
        speed = steps * options.batch_size / seconds
        accuracy, loss, images = evaluate(net.module, test_loader, device, options)
        say(
            f"epoch {epoch}: train loss {sum(losses) / steps:.4f}, test loss {loss:.4f}, accuracy "
            f"{accuracy:.2%} of {images:,} images; {speed:,.0f} images/s, {seconds:.1f} s, "
            f"{memory:,.0f} MiB"
        )
        history["losses"] += losses
        history["accuracies"].append(accuracy)
        history["test_losses"].append(loss)
        history["images_per_second"].append(speed)
        if options.save:
            save(options, parts, epoch, history)
    accuracy, loss = history["accuracies"][-1], history["test_losses"][-1]
    results = {**history, "accuracy": accuracy, "loss": loss, "weights": checksum(net.module)}
    say(f"result: accuracy {accuracy!r}, loss {loss!r}, weights {results['weights']}")
    return net.module, results


def main(argv=None, device=None):
    """Train as the options say; return the model and the results."""
    options = read_options(argv)
    device = device or pick_device()
    precision = "tf32" if options.tf32 else "ieee"
    with process_group(device), torch.backends.flags(fp32_precision=precision):
        return train(options, device)


if __name__ == "__main__":
    if LOCAL_WORLD_SIZE > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # ranks share the cores
    record(main)()  # torchrun then shows the first error of a rank
