"""A script of one's own: one process turned into several that train the same."""

from __future__ import annotations

from ...exercise import Exercise
from . import own_script
from .alone import SINGLE
from .own_script_mistakes import MISTAKES

#: In another layout: averages gradients by hand, in two parts of a batch, starts from weights of
#: its own on each rank but 0, and leaves the end of the group to the end of the process.
ANOTHER = """
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

options = dict(word.removeprefix("--").split("=") for word in sys.argv[1:])
path, until = options["checkpoint"], int(options["epochs"])
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 4))
for p in net.parameters():
    dist.broadcast(p.data, src=0)
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
begin = 0
if os.path.exists(path):
    saved = torch.load(path)
    net.load_state_dict(saved["model"])
    sgd.load_state_dict(saved["optimizer"])
    begin = saved["epoch"]
points = torch.randn(1024, 2, generator=torch.Generator().manual_seed(1))
rings = (2 * points.norm(dim=1)).long().clamp(max=3)
criterion = nn.CrossEntropyLoss(reduction="sum")
for epoch in range(begin, until):
    order = torch.randperm(1024, generator=torch.Generator().manual_seed(epoch))
    for batch in order.view(-1, 64):
        sgd.zero_grad()
        for part in batch.view(size, 2, -1)[rank]:
            (criterion(net(points[part]), rings[part]) / 64).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        sgd.step()
    if rank == 0:
        state = dict(model=net.state_dict(), optimizer=sgd.state_dict(), epoch=epoch + 1)
        with open(path + ".new", "wb") as file:
            torch.save(state, file)
        os.rename(path + ".new", path)
"""

EXERCISE = Exercise(
    id="09-7",
    title="Your own DDP script",
    answer="my_ddp.py",
    where="file",
    start=SINGLE,
    trial=own_script.trial,
    expected=own_script.expected,
    seconds=90.0,
    mistakes=MISTAKES,
    hints=(
        "Five places change: the group and the device at the beginning, the sampler and its share "
        "of the batch, the model that is called in the loop, which rank writes and prints, and "
        "the end. The rest of single.py stays as it is, loading a checkpoint included.",
        "Load the checkpoint into the model on every rank before DDP(model) wraps it, and save "
        "model.state_dict(): then the names are those of single.py. The optimizer gets the "
        "parameters of the model, and the loop calls the wrapped model.",
        "Under `if dist.get_rank() == 0:` there are only print, torch.save and os.replace, no call "
        "that other ranks have to make too. Call sampler.set_epoch(epoch) before each epoch. The "
        "loader of a rank takes BATCH_SIZE // dist.get_world_size() rows per step.",
    ),
)
