"""What notebooks 07 and 25 show on GPUs only. Run by hand where there is one: pytest -m gpu."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import labkit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
]

ROWS = 6


def rows(rank: int) -> torch.Tensor:
    """Return a rank's rows, around its own number."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(ROWS, 3, generator=generator) + rank


def synced() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return output, gradient and running mean of a BatchNorm layer that was converted."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    device = torch.device("cuda", torch.cuda.current_device())
    net = nn.Sequential(nn.BatchNorm1d(3))
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net).to(device)
    assert isinstance(net[0], nn.SyncBatchNorm)
    ddp = DistributedDataParallel(net, device_ids=[device.index])
    x = rows(dist.get_rank()).to(device).requires_grad_()
    out = ddp(x)
    out.pow(3).sum().backward()
    mean = net[0].running_mean
    assert x.grad is not None
    assert mean is not None
    return out.detach().cpu(), x.grad.cpu(), mean.cpu()


def test_sync_batch_norm_is_batch_norm_of_all_rows(lab2: labkit.Lab) -> None:
    out, gradient, mean = (torch.stack(parts) for parts in zip(*lab2.run(synced), strict=True))
    x = torch.cat([rows(rank) for rank in range(lab2.world_size)]).requires_grad_()
    norm = nn.BatchNorm1d(3)
    alone = norm(x)
    alone.pow(3).sum().backward()
    assert x.grad is not None
    assert norm.running_mean is not None
    torch.testing.assert_close(out.flatten(0, 1), alone.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gradient.flatten(0, 1), x.grad, rtol=1e-3, atol=1e-3)
    assert all(torch.allclose(m, norm.running_mean, atol=1e-5) for m in mean)


def device_ids() -> tuple[bool, list[str]]:
    """Return whether DDP moved a CPU tensor to its GPU, and what it says of wrong arguments."""
    from torch.nn.parallel import DistributedDataParallel

    device = torch.device("cuda", torch.cuda.current_device())
    net = nn.Linear(3, 2).to(device)
    ddp = DistributedDataParallel(net, device_ids=[device.index], output_device=device.index)
    moved = ddp(torch.zeros(1, 3)).device == device
    said = []
    for model, ids in ((net, [0, 1]), (nn.Linear(3, 2), [0])):
        try:
            DistributedDataParallel(model, device_ids=ids)
        except ValueError as error:
            said.append(str(error))
    return moved, said


def test_device_ids(lab2: labkit.Lab) -> None:
    for moved, said in lab2.run(device_ids):
        assert moved
        assert "single element" in said[0]
        assert "only work with" in said[1]
