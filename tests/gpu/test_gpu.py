"""The same ranks on GPUs. Run by hand where there is one: pytest -m gpu."""

import os

import pytest
import torch

import labkit
from labkit.launch.placement import NCCL_SHARES_GPU
from labkit.rank.gpus import nccl_version
from labkit.runtime.control import list_states
from tests.support.cells import inside, run_cell

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
]


def every_collective():
    """Run the nine collectives on this rank's GPU; return what can be checked, on the CPU."""
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", torch.cuda.current_device())
    rank, size = dist.get_rank(), dist.get_world_size()

    def filled(value):
        return torch.full((2,), float(value), device=device)

    results = {}
    x = filled(rank)
    dist.broadcast(x, src=size - 1)
    results["broadcast"] = x.tolist() == [size - 1] * 2
    x = filled(rank)
    dist.all_reduce(x)
    results["all_reduce"] = x.tolist() == [size * (size - 1) / 2] * 2
    x = filled(1)
    dist.reduce(x, dst=0)
    results["reduce"] = rank != 0 or x.tolist() == [size] * 2
    everyone = [filled(-1) for _ in range(size)]
    dist.all_gather(everyone, filled(rank))
    results["all_gather"] = [t[0].item() for t in everyone] == list(range(size))
    got = [filled(-1) for _ in range(size)] if rank == 0 else None
    dist.gather(filled(rank), got, dst=0)
    results["gather"] = rank != 0 or [t[0].item() for t in got] == list(range(size))
    piece = filled(-1)
    dist.scatter(piece, [filled(i) for i in range(size)] if rank == 0 else None, src=0)
    results["scatter"] = piece.tolist() == [rank] * 2
    mine = filled(-1)
    dist.reduce_scatter(mine, [filled(i) for i in range(size)])
    results["reduce_scatter"] = mine.tolist() == [size * rank] * 2
    incoming = [filled(-1) for _ in range(size)]
    dist.all_to_all(incoming, [filled(10 * rank + i) for i in range(size)])
    results["all_to_all"] = [t[0].item() for t in incoming] == [10 * j + rank for j in range(size)]
    dist.barrier()
    return results


def ddp_step():
    """Take one DDP step; return the parameters, which must be equal on every rank."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    device = torch.device("cuda", torch.cuda.current_device())
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(4, 2).to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(8, 4, device=device)).sum().backward()
    optimizer.step()
    return [p.detach().cpu().tolist() for p in model.parameters()]


def test_one_rank_gets_the_first_gpu_and_nccl(lab1):
    (state,) = lab1.status()
    assert (state.device, state.backend) == ("cuda:0", "nccl")
    (results,) = lab1.run(every_collective)
    assert all(results.values()), results


def test_no_number_gives_a_rank_for_each_gpu():
    with labkit.start() as lab:
        assert lab.world_size == torch.cuda.device_count()


@pytest.mark.parametrize("ranks", [2, 4])
def test_more_ranks_than_gpus(ranks):
    if torch.cuda.device_count() >= ranks:
        pytest.skip("this machine has a GPU for each rank")
    shares = (nccl_version() or ())[:2] >= NCCL_SHARES_GPU
    with labkit.start(ranks) as lab:
        assert {s.backend for s in lab.status()} == {"nccl" if shares else "gloo"}
        for results in lab.run(every_collective):
            assert all(results.values()), results
        parameters = lab.run(ddp_step)
        assert all(p == parameters[0] for p in parameters)


def test_the_owner_and_the_warm_process_touch_no_gpu(lab1):
    pid = inside(lab1).cluster.launcher.warm.process.pid
    assert len(os.listdir(f"/proc/{pid}/task")) == 1
    assert not torch.cuda.is_initialized()


def test_tensors_arrive_on_the_cpu(lab1):
    lab1.run(every_collective)
    lab1["x"] = 1.0

    def make():
        import torch

        return torch.ones(3, device="cuda")

    assert lab1.run(make)[0].device.type == "cpu"


def test_the_board_knows_the_gpus():
    with labkit.start() as lab:
        run_cell(lab, "x = torch.ones(2**20, device=device)")
        for state in list_states(inside(lab).cluster):
            assert state.gpu.used >= 4 * 2**20
            assert state.gpu.total > 2**30
            assert 0 <= state.gpu.busy <= 100
