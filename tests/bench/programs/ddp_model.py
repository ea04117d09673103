"""Train notebook 07's network with DDP: a ``%%px`` cell for labkit, a module for torchrun.

Model, batch and loop are the notebook's. The images have MNIST's shape (28 × 28, one channel, ten
classes) and are random: how long a step takes does not depend on what is in them.
"""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 25  #: images a step, on each rank


def make_model():
    features = [nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(32 * 6 * 6, 10))


images = torch.rand(BATCH, 1, 28, 28)
labels = torch.randint(0, 10, (BATCH,))
ddp = DistributedDataParallel(make_model())
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)


def train(steps):
    """Take ``steps`` steps; return the images a second of all ranks together."""
    losses = []
    dist.barrier()
    began = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    dist.barrier()
    return dist.get_world_size() * BATCH * steps / (time.perf_counter() - began)
