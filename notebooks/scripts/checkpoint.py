"""Tools for notebooks 11 and 15: a disk that stops half-way, a process that may die, a look into a
file, a short training, and a small sharded training.

The disk and the child make accidents exact: they happen at a byte, not after some time.
"""

import io
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import partial
from multiprocessing import get_context

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import labkit


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


def kill_9():
    """End this process at once, as a lost machine does."""
    os.kill(os.getpid(), signal.SIGKILL)


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


class SlowWriter(FileSystemWriter):
    """Write a checkpoint's folder, but no data before ``go.set()`` is called (at most 60 s)."""

    def __init__(self, path):
        super().__init__(path)
        self.go = threading.Event()

    def write_data(self, *args):
        self.go.wait(60)
        return super().write_data(*args)


def killed_at(save, old, new, path, after):
    """Kill a save when ``after`` bytes are written; return what is there: old, new or nothing."""
    torch.save(old, path)
    in_child(save, new, path, partial(Disk, pause=kill_9, after=after))
    contents = {str(state["weight"].unique().tolist()): state for state in (old, new)}
    found = contents.get(str(look(path)))
    return "nothing" if found is None else "old" if found is old else "new"


def on_a_full_disk(save, state, path):
    """Save where a file can have 128 KiB and no more. Call it in a child."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, 2**17))
    save(state, path)


def let_others_go():
    """Wait on rank 0, in the middle of its file, until the others have done something."""
    dist.barrier()  # rank 0 has written half
    dist.barrier()  # the others are done


def save_on_every_rank(state, path):
    """Save on all ranks into one file: the others write while rank 0 has written half."""
    if dist.get_rank() == 0:
        with Disk(path, "wb", pause=let_others_go) as file:
            torch.save(state, file)
    else:
        dist.barrier()
        with Disk(path, "wb") as file:
            torch.save(state, file)
        dist.barrier()
    dist.barrier()


def newest_step(folder):
    """Return the highest step of the files step-1.pt, step-2.pt, ... in a folder."""
    return max(int(name.removeprefix("step-").removesuffix(".pt")) for name in os.listdir(folder))


def train(t, epochs):
    """Train on, ten steps per epoch on four ranks; return the weights after each step."""
    device, steps = t.net[1].weight.device, []
    data = labkit.datasets.mnist_tensors(train=True, size="subset")
    sampler = DistributedSampler(range(640))
    loader = DataLoader(TensorDataset(*data), batch_size=16, sampler=sampler)
    for _ in range(epochs):
        sampler.set_epoch(t.epoch)
        for images, labels in loader:
            t.optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.float16):
                loss = F.cross_entropy(t.ddp(images.to(device)), labels.to(device))
            t.scaler.scale(loss).backward()
            t.scaler.step(t.optimizer)
            t.scaler.update()
            steps.append(nn.utils.parameters_to_vector(t.net.parameters()).detach().clone())
        t.scheduler.step()
        t.epoch += 1
    return steps


def stop_when_saved(line, path):
    """Start torchrun, and send it SIGTERM as soon as there is a checkpoint."""
    words = [sys.executable, "-m", "torch.distributed.run", *line.split()]
    job = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not os.path.exists(path) and job.poll() is None:
        time.sleep(0.02)
    job.terminate()
    job.wait()


def sharded(seed, device):
    """Return a small network, of which each rank holds its rows only, and its optimizer."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(20, 10), nn.Tanh(), nn.Linear(10, 8)).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for module in (net[0], net[2], net):  # each layer by itself: notebook 15 says why
        fully_shard(module, mesh=mesh)
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
