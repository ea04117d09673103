"""What train.py trains: a small network, on handwritten digits. Put your own in their place."""

import random
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset
from torch.utils.flop_counter import FlopCounterMode

DATA = Path(__file__).resolve().parents[2] / "data"


def read_digits(part, folder=DATA):
    """Return MNIST, or what of it is in FOLDER/MNIST/raw; ``part`` is "train" or "t10k".

    Images are bytes, (N, 1, 28, 28), labels int64, (N,).
    """

    def read(name, header):
        content = bytearray((folder / "MNIST" / "raw" / f"{part}-{name}-ubyte").read_bytes())
        return torch.frombuffer(content, dtype=torch.uint8, offset=header)

    images, labels = read("images-idx3", header=16), read("labels-idx1", header=8)
    return TensorDataset(images.view(-1, 1, 28, 28), labels.long())


def reseed(*numbers):
    """Seed torch by a hash of numbers, so that no two steps, ranks or runs get the same."""
    torch.manual_seed(random.Random(repr(numbers)).getrandbits(63))


def make_model(dropout=0.2):
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(dropout), nn.Linear(32 * 5 * 5, 10)),
    )


def make_optimizer(model):
    """Decay matrices and filters, but not biases; update each group with one fused kernel."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-3, fused=True)


def sums_of(model, batch, device):
    """Return the loss of a batch, added up, and how many digits the model reads right."""
    images, labels = (part.to(device, non_blocking=True) for part in batch)
    scores = model((images / 255 - 0.1307) / 0.3081)
    return F.cross_entropy(scores, labels, reduction="sum"), (scores.argmax(1) == labels).sum()


def flops_of(model, data, device):
    """Return how many operations one example takes, forward and backward."""
    with FlopCounterMode(display=False) as counter:
        sums_of(model, [tensor[None] for tensor in data[0]], device)[0].backward()
    model.zero_grad()
    return counter.get_total_flops()
