"""The timeline of ranks on GPUs. Run by hand where there is one: pytest -m gpu."""

import pytest
import torch

import labkit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
]

STEPS = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

net = DDP(nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(6)]).to(device), bucket_cap_mb=16)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.ones(512, 2048, device=device)).square().mean().backward()
        optimizer.step()


train(3)
"""


def test_kernels_are_the_work_and_the_communication():
    with labkit.start() as lab:
        lab.timeline(STEPS)
        timeline = lab.timeline("train(3)")
        for rank in timeline.ranks:
            for kind in ("forward", "backward", "optimizer", "communication"):
                assert 0 < timeline.share(kind, rank) < 1, kind
        names = {s.name for s in timeline.spans if s.kind == "communication"}
        assert names == {"all_reduce"}
        assert timeline.picture().png
