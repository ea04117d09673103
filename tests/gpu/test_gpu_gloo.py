"""Ranks that share a GPU where NCCL cannot do that: gloo moves tensors that lie on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import labkit
from labkit import Deadlock
from tests.support.cells import finish_cell, results, run_cell, send_cell
from tests.support.observed import Record, observe

from .ranks import FAKE, GPUS, nccl_serves, needs_gpu, restored

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS and not FAKE, reason="this machine has no GPU"),
]

WORKS = "x = torch.ones(1, device=device)\ndist.all_reduce(x)\nx.item()"


@pytest.fixture(scope="module", params=[2, 4], ids=lambda n: f"{n}ranks")
def _lab(request: pytest.FixtureRequest) -> Iterator[labkit.Lab]:
    if nccl_serves(request.param):
        pytest.skip("NCCL serves so many ranks here, so labkit does not choose gloo")
    with labkit.start(request.param) as started:
        yield started


@pytest.fixture
def lab(_lab: labkit.Lab) -> labkit.Lab:
    """Return the lab, each rank alive and idle."""
    return restored(_lab)


def works(lab: labkit.Lab) -> None:
    assert results(run_cell(lab, WORKS)) == [f"{len(lab)}.0"] * len(lab)


def test_ranks_share_the_gpus_and_gloo_serves_them(lab: labkit.Lab) -> None:
    states = lab.status()
    expected = [f"cuda:{r % GPUS}" if GPUS else "cpu" for r in range(len(lab))]
    assert [str(state.device) for state in states] == expected
    assert {state.backend for state in states} == {"gloo"}
    works(lab)


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("dist.broadcast(x, 1)", "2.0"),
        ("dist.all_reduce(x, dist.ReduceOp.MAX)", "{n}.0"),
        ("o = torch.empty(world_size, device=device); dist.all_gather_into_tensor(o, x); x = o[-1]",
         "{n}.0"),
        ("dist.reduce_scatter_tensor(x, torch.ones(world_size, device=device))", "{n}.0"),
        ("dist.all_to_all_single(o := torch.empty(world_size, device=device), "
         "x.repeat(world_size)); x = o[1]", "2.0"),
    ],
    ids=["broadcast", "all_reduce", "all_gather", "reduce_scatter", "all_to_all"],
)  # fmt: skip
def test_a_collective_gives_what_the_cpu_gives(lab: labkit.Lab, call: str, shown: str) -> None:
    code = f"x = torch.tensor([rank + 1.0], device=device)\n{call}\nx.item()"
    assert results(run_cell(lab, code)) == [shown.format(n=len(lab))] * len(lab)


@needs_gpu
def test_a_message_from_the_gpu_is_refused_and_one_from_the_cpu_arrives(lab: labkit.Lab) -> None:
    code = (
        "x = torch.ones(1, device={})\n"
        "dist.recv(x, rank ^ 1) if rank % 2 else dist.send(x, rank ^ 1)"
    )
    found = finish_cell(send_cell(lab, code.format("device")))
    assert found.error is not None
    works(lab)
    run_cell(lab, code.format("'cpu'"))


def test_ddp_averages_the_gradients(lab: labkit.Lab) -> None:
    code = (
        "net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False)"
        ".to(device))\n"
        "net(torch.full((1, 1), rank + 1.0, device=device)).sum().backward()\n"
        "net.module.weight.grad.item()"
    )
    n = len(lab)
    assert results(run_cell(lab, code)) == [str((n + 1) / 2)] * n


def test_a_skipped_collective_is_named_and_survived(
    lab: labkit.Lab, record_property: Record
) -> None:
    cell = "#px In[7]\nx = torch.ones(3, device=device)\nif rank: dist.all_reduce(x)\n"
    found = observe(lab, record_property, cell)
    assert type(found.error) is Deadlock, found.error
    assert found.ending.case is not None
    assert set(found.ending.case.stuck) == set(range(1, len(lab)))
    works(lab)
