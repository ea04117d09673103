"""The cause of a deadlock is the true one, in programs as people write them."""

from __future__ import annotations

import re

import pytest

import labkit
from tests.support.cells import finish_cell, restored, send_cell
from tests.support.deadlocks import cell

PRELOAD = ("torch.distributed.fsdp", "torch.distributed.tensor", "torch.distributed.checkpoint")


@pytest.fixture(scope="module")
def module_lab():
    with labkit.start(3, preload=PRELOAD) as started:
        yield started


@pytest.fixture
def lab(module_lab):
    return restored(module_lab)


NN = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
"""
FSDP = (
    NN
    + """
from torch.distributed.fsdp import fully_shard
m = nn.Sequential(fully_shard(nn.Linear(4, 3)), nn.Linear(3, 1))
fully_shard(m)
x = torch.ones(2, 4)
"""
)
BATCHNORM = (
    NN
    + """
net = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
net(torch.rand(8, 4)).sum().backward()
"""
)
UNEVEN = (
    NN
    + """
class Numbers(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(torch.arange(rank * 1.0, 10.0, world_size)[:, None])
model = DDP(nn.Linear(1, 1))
for x in torch.utils.data.DataLoader(Numbers(), batch_size=1):
    model(x).sum().backward()
"""
)
SAVE = "import tempfile, torch.distributed.checkpoint as dcp\nstate = {'w': torch.ones(4)}\n"
BACKWARD = r"^Cause: backward\(\) communicates too: ranks 1–2 did not call it\.$"
FEWER = r"^Cause: Rank 0 is in DDP's backward, ranks 1–2 are past it, at In\[7\], line \d+: they"
ALONE = r"to evaluate on one rank alone, call model\.module there\.$"
CONDITION = r"^Cause: .* the condition before it was not met each time there\."

#: The program, and what the message says.
CAUSES = {
    "a backward of FSDP": (FSDP + "loss = m(x).sum()\nif rank == 0: loss.backward()", (BACKWARD,)),
    "a backward of a functional collective": (
        """
        import torch.distributed.nn.functional as F
        w = torch.ones(2, requires_grad=True)
        loss = F.all_reduce(w * (rank + 1)).sum()
        if rank == 0: loss.backward()
        """, (BACKWARD,)),
    "a backward of tensor parallel, beside a DDP model": (
        NN + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import *
other = DDP(nn.Linear(1, 1))
t = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
parallelize_module(t, init_device_mesh("cpu", (world_size,)), plan)
loss = t(torch.ones(2, 3, requires_grad=True)).sum()
if rank == 0: loss.backward()
""", (BACKWARD,)),
    "a backward of DDP": (
        NN + "m = DDP(nn.Linear(4, 1))\nloss = m(torch.ones(4))\nif rank == 0: loss.backward()",
        (r"^Cause: Ranks 1–2 made fewer training steps", r"\) of backward at")),
    "uneven batches and a metric": (
        UNEVEN + "total = torch.tensor([1.0])\ndist.all_reduce(total)", (FEWER,)),
    "uneven batches and a barrier": (UNEVEN + "dist.barrier()", (FEWER,)),
    "an uneven loop by hand and a smaller metric": (
        """
        g, t = torch.ones(3), torch.ones(2)
        for step in range(4 if rank == 0 else 3):
            dist.broadcast(g, 0)
            dist.all_reduce(g, op=dist.ReduceOp.SUM)
        dist.barrier()
        """, (r"^Cause: Rank 0 is still at In\[7\], line 4, ranks 1–2 are past it, at",)),
    "a condition in a loop": (
        """
        x = torch.ones(1)
        for i in range(4):
            flag = i < 3 or rank == 0
            if flag: dist.all_reduce(x)
        """, (CONDITION,)),
    "a condition in a function": (
        """
        def step(flag):
            if flag: dist.barrier()
        for flag in (True, True, True, rank == 0):
            step(flag)
        """, (CONDITION,)),
    "an evaluation of DDP on one rank": (
        BATCHNORM + "if rank == 0:\n    net.eval()\n    net(torch.rand(8, 4))",
        (r"^Cause: Ranks 1–2 did not call the model here\.", ALONE)),
    "an evaluation of DDP before a barrier": (
        BATCHNORM + """
@torch.no_grad()
def score(): return net(torch.rand(8, 4)).sum()
if rank == 0: score()
dist.barrier()
""", (r"^Cause: Rank 0 is in the model's forward, ranks 1–2 are past it", ALONE)),
    "a message to another rank": (
        """
        x = torch.ones(1)
        if rank == 0: dist.send(x, 2)
        if rank == 1: dist.recv(x, 0)
        """, (r"Rank 0 sends to rank 2, and rank 1 receives from rank 0: one of them may name",)),
    "a message from another rank": (
        """
        x = torch.ones(1)
        if rank == 0: dist.send(x, 1)
        if rank == 1: dist.recv(x, 2)
        """, (r"Rank 0 sends to rank 1, and rank 1 receives from rank 2: one of them may name",)),
    "a checkpoint on one rank": (
        SAVE + "if rank == 0: dcp.save(state, checkpoint_id=tempfile.mkdtemp())",
        (r"\) of dcp\.save at In\[7\]",)),
    "a checkpoint by a thread on one rank": (
        SAVE + "if rank == 0: dcp.async_save(state, checkpoint_id=tempfile.mkdtemp()).result()",
        (r"\) of save at In\[7\]",)),
    "a forward of FSDP on one rank": (FSDP + "if rank == 0: m(x)", (r"\) of m\(x\) at In\[7\]",)),
    "a norm of FSDP on one rank": (
        FSDP + "m(x).sum().backward()\nif rank == 0:\n"
        "    n = nn.utils.clip_grad_norm_(m.parameters(), 1.0)\n    n.full_tensor()",
        (r"\) of \S*(clip_grad_norm_|full_tensor)\S* at In\[7\]",)),
    "a collective by its own name": (
        "if rank == 0: dist.all_gather_object([None] * 3, {})",
        (r"\) of all_gather_object at In\[7\]",)),
}  # fmt: skip


@pytest.mark.parametrize(("program", "says"), CAUSES.values(), ids=CAUSES)
def test_the_cause_is_the_true_one(lab, program, says):
    finished = finish_cell(send_cell(lab, cell(program, 7)))
    text = str(finished.error)
    assert finished.ending.kind == "deadlock", text
    for pattern in says:
        assert re.search(pattern, text, re.MULTILINE), text
    for inside_of_torch in ("inner", "wrapper", "_unshard", "<locals>"):
        assert inside_of_torch not in text


def test_two_threads_in_one_group_are_the_cause(lab):
    """Which thread of which rank comes first is chance: the main ones meet the others' threads."""
    program = """
        import threading
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        loss = model(torch.ones(4)).sum()
        def save():
            dist.gather_object("saved", [None] * 3 if rank == 0 else None)
        saving = threading.Thread(target=save)
        if rank == 1:
            import time
            saving.start()
            while not noted(): time.sleep(0.01)
            loss.backward()
        else:
            loss.backward()
            saving.start()
        saving.join()
    """
    helper = """
        def noted():
            from labkit.rank.observe import flight_recorder
            return bool(flight_recorder.pending())
    """
    finish_cell(send_cell(lab, cell(helper, 6)))
    text = str(finish_cell(send_cell(lab, cell(program, 7))).error)
    assert "Two threads of rank 1 call collectives of the same group" in text
    assert "gather" not in text.split("of backward")[0].rpartition("rank 1 waits in")[2]
