"""Models that are cut, what notebook 13 says of them, on GPUs. Run by hand: pytest -m gpu."""

import pytest
import torch

import labkit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
]


def two_devices():
    """Train one DDP step of a model on two GPUs, which ranks may share; return whether the output
    is on the second one, and the largest difference of a gradient from one process."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    rank, world_size = dist.get_rank(), dist.get_world_size()
    gpus = torch.cuda.device_count()
    first, second = (torch.device("cuda", (2 * rank + k) % gpus) for k in range(2))

    class TwoHalves(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.front, self.back = nn.Linear(8, 16).to(first), nn.Linear(16, 4).to(second)

        def forward(self, x):
            return self.back(self.front(x.to(first)).relu().to(second))

    torch.manual_seed(0)
    rows, wanted = torch.randn(24, 8), torch.randn(24, 4)

    def gradient(net, part):
        scores = net(rows[part])
        F.mse_loss(scores, wanted[part].to(scores.device)).backward()
        return torch.cat([p.grad.flatten().cpu() for p in net.parameters()]), scores.device

    # labkit's NCCL group is bound to one GPU a rank
    net = DistributedDataParallel(TwoHalves(), process_group=dist.new_group(backend="gloo"))
    shared, where = gradient(net, slice(rank, None, world_size))
    alone, _ = gradient(TwoHalves(), slice(None))
    return where == second, (shared - alone).abs().max().item()


def sharded():
    """Train five steps with fully_shard; return the bytes before and after it, and the largest
    difference of the mean loss from that of one process."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", torch.cuda.current_device())
    torch.manual_seed(1)
    x, y = torch.randn(24, 48).to(device), torch.randn(24, 24).to(device)

    def make_net():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 24)).to(device)

    def train(net, part):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.mse_loss(net(x[part]), y[part])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    net = make_net()
    before = sum(p.nbytes for p in net.parameters())
    line = init_device_mesh("cuda", (world_size,))
    for layer in (net[0], net[2], net):
        fully_shard(layer, mesh=line)
    after = sum(p.to_local().nbytes for p in net.parameters())
    losses = train(net, slice(rank, None, world_size))
    dist.all_reduce(losses)
    single = train(make_net(), slice(None))
    return before, after, (losses / world_size - single).abs().max().item()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_model_on_two_gpus_trains_in_ddp(ranks):
    if torch.cuda.device_count() < 2:
        pytest.skip("this needs two GPUs")
    with labkit.start(ranks) as lab:
        for on_the_second, difference in lab.run(two_devices):
            assert on_the_second
            assert difference < 1e-4


def test_fully_shard_keeps_a_part_and_computes_the_same():
    ranks = torch.cuda.device_count()
    if 96 % ranks or 24 % ranks:
        pytest.skip(f"{ranks} ranks do not share 24 rows evenly")
    with labkit.start(ranks) as lab:
        for before, after, difference in lab.run(sharded):
            assert after * ranks == before
            assert difference < 1e-4
