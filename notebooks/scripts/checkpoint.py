"""Tools for notebook 10: a disk that stops half-way, a process that may die, a look into a file,
and a small sharded training.

The disk and the child make accidents exact: they happen at a byte, not after some time.
"""

import io
import os
import warnings
from multiprocessing import get_context

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Disk(io.FileIO):
    """A file that calls ``pause`` once, when ``after`` bytes are written, and then goes on."""

    def __init__(self, path, mode="rb", pause=None, after=2**17):
        super().__init__(path, mode)
        self.pause, self.after = pause, after

    def write(self, data):
        room = self.after - self.tell()
        if self.pause and len(data) > room:
            super().write(data[:room])
            data, pause, self.pause = data[room:], self.pause, None
            pause()
        return super().write(data)


def look(path):
    """Return the different numbers of the weight in a file, or the name of what went wrong."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return state["weight"].unique().tolist()
    except (OSError, EOFError, RuntimeError) as error:
        return type(error).__name__


def in_child(function, *args, seconds=30):
    """Run a function in a process of its own; return its exit code: 0, 1 after an error, or minus
    the number of the signal that killed it. The child is a copy of this process (a fork), so it
    has all its variables; it should not compute with torch, whose threads are not copied."""
    child = get_context("fork").Process(target=_alone, args=(function, *args))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: about those threads
        child.start()
    child.join(seconds)
    if child.is_alive():
        child.kill()
        child.join()
    return child.exitcode


def _alone(function, *args):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        function(*args)
    except Exception:
        os._exit(1)
    os._exit(0)  # without the clean-up of the notebook, whose copy this is


def sharded(seed, device):
    """Return a small network, of which each rank holds its rows only, and its optimizer."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(20, 10), nn.Tanh(), nn.Linear(10, 8)).to(device)
    fully_shard(net, mesh=init_device_mesh(device.type, (dist.get_world_size(),)))
    return net, torch.optim.Adam(net.parameters(), lr=0.01)


def learn(net, optimizer):
    """Take a step."""
    x = torch.ones(4, 20, device=net[0].weight.device)
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def whole(net, optimizer):
    """Return the first weight and its first moment, put together from all ranks."""
    weight = net[0].weight
    tensors = (weight, optimizer.state[weight]["exp_avg"])
    return [t.detach().full_tensor().clone() for t in tensors]  # one rank alone copies nothing
