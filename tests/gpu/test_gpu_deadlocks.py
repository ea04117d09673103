"""Never hang, on NCCL. Run by hand where there is a GPU, before anything else: pytest -m gpu.

None of this has been run on a GPU yet; it was written from torch's sources, and tried with
``tests.support.nccl_manners`` as far as that goes.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator

import pytest
import torch

import labkit
from labkit import Deadlock, Interrupted, RankDied
from labkit.launch.placement import NCCL_SHARES_GPU
from labkit.rank.nccl_version import nccl_version
from labkit.runtime.diagnosis import Ending
from labkit.runtime.finish import finish
from tests.support.cells import finish_cell, results, run_cell, send_cell


def has_nccl_for(ranks: int) -> bool:
    """Tell whether NCCL serves so many ranks on the GPUs of this machine."""
    if not torch.cuda.is_available():
        return False
    return torch.cuda.device_count() >= ranks or (nccl_version() or ())[:2] >= NCCL_SHARES_GPU


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_nccl_for(2), reason="this machine has no GPU for two ranks of NCCL"),
]

#: What a learner may call a deadlock after, at most.
SECONDS = 15.0
WORKS = "x = torch.ones(1, device=device)\ndist.all_reduce(x)\nx.item()"
FAULTS = {
    "a rank skips all_reduce": (
        "x = torch.ones(3, device=device)\nif rank: dist.all_reduce(x)",
        {1},
        2,
    ),
    "and looks at its result": (
        "x = torch.ones(3, device=device)\nif rank:\n    dist.all_reduce(x)\n    print(x)",
        {1},
        3,
    ),
    "a handle is waited for": (
        "x = torch.ones(3, device=device)\nif rank:\n    work = dist.all_reduce(x, async_op=True)\n"
        "    work.wait()",
        {1},
        3,
    ),
    "a rank skips a barrier": ("if rank:\n    dist.barrier()", {1}, 2),
    "different collectives": (
        # large: NCCL could complete small ones, each with what the other has sent
        "x = torch.ones(1 << 26, device=device)\n"
        "dist.all_reduce(x) if rank else dist.broadcast(x, 0)\n"
        "dist.all_reduce(x)",
        {0, 1},
        2,
    ),
    "a receive without a partner": (
        "x = torch.ones(3, device=device)\nif rank: dist.recv(x, 0)",
        {1},
        2,
    ),
    "both receive first": (
        "x = torch.ones(3, device=device)\ndist.recv(x, 1 - rank)\ndist.send(x, 1 - rank)",
        {0, 1},
        2,
    ),
    "a long send without a partner": (
        "x = torch.ones(1 << 26, device=device)\nif rank: dist.send(x, 0)",
        {1},
        2,
    ),
    "a batch without a partner": (
        "x, y = (torch.ones(3, device=device) for _ in range(2))\n"
        "ends = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]\n"
        "if rank: dist.batch_isend_irecv(ends)",
        {1},
        3,
    ),
    "a step of DDP less": (
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "model = DDP(torch.nn.Linear(3, 1).to(device), device_ids=[device.index])\n"
        "for _ in range(2 + rank):\n"
        "    loss = model(torch.ones(2, 3, device=device)).sum()\n"
        "    loss.backward()",
        {1},
        5,
    ),
    "gloo, beside NCCL": ("x = torch.ones(3)\nif rank: dist.all_reduce(x)", {1}, 2),
}


@pytest.fixture(scope="module")
def lab() -> Iterator[labkit.Lab]:
    with labkit.start(2) as started:
        assert {state.backend for state in started.status()} == {"nccl"}
        yield started


def values(lab: labkit.Lab, code: str) -> list[object]:
    return [ast.literal_eval(shown or "None") for shown in results(run_cell(lab, code))]


# -- what is right goes on being right: try this first ------------------------------------------


def test_tensors_on_the_gpu_and_on_the_cpu_are_added_up(lab: labkit.Lab) -> None:
    assert values(lab, WORKS) == [2.0, 2.0]
    assert values(lab, "x = torch.ones(1)\ndist.all_reduce(x)\nx.item()") == [2.0, 2.0]
    assert values(lab, "o = [None, None]\ndist.all_gather_object(o, rank)\no") == [[0, 1]] * 2
    assert values(lab, "own = dist.new_group([0, 1])\nx = torch.ones(1, device=device)\n"
                       "dist.all_reduce(x, group=own)\nx.item()") == [2.0, 2.0]  # fmt: skip


def test_a_batch_of_messages_is_done(lab: labkit.Lab) -> None:
    code = (
        "x = torch.full((3,), float(rank), device=device)\n"
        "y = torch.empty(3, device=device)\n"
        "ends = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]\n"
        "for work in dist.batch_isend_irecv(ends): work.wait()\n"
        "y.tolist()"
    )
    assert values(lab, code) == [[1.0] * 3, [0.0] * 3]


def test_a_send_outside_a_batch_warns_of_nothing(lab: labkit.Lab) -> None:
    code = "x = torch.ones(3, device=device)\ndist.recv(x, 0) if rank else dist.send(x, 1)"
    assert [outcome.stderr for outcome in run_cell(lab, code)] == ["", ""]


def test_a_cell_ends_when_its_work_on_the_gpu_has_ended(lab: labkit.Lab) -> None:
    run_cell(lab, "torch.cuda.synchronize()")
    code = "if rank: torch.cuda._sleep(2_000_000_000)\nx = torch.ones(1, device=device)\n"
    run_cell(lab, code + "dist.all_reduce(x)")
    assert values(lab, "torch.cuda.current_stream(device).query()") == [True, True]


def test_what_is_done_is_not_pending(lab: labkit.Lab) -> None:
    """A batch too, though the recorder never says so of its messages."""
    test_a_batch_of_messages_is_done(lab)
    code = "from labkit.rank import device as D\nD.uses_device(), D.pending(), D.pending_messages()"
    assert values(lab, code) == [(True, (), ())] * 2


def test_a_rank_sleeps_where_it_waits_for_its_gpu(lab: labkit.Lab) -> None:
    code = (
        "import time\n"
        "x = torch.ones(1, device=device)\n"
        "torch.cuda._sleep(4_000_000_000)\n"
        "began, used = time.monotonic(), time.thread_time()\n"
        "x.item()\n"
        "time.monotonic() - began > 0.5, (time.thread_time() - used) / (time.monotonic() - began)"
    )
    for long, share in values(lab, code):  # type: ignore[misc]
        assert long
        assert share < 0.3


# -- what is in vain ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_survived(lab: labkit.Lab, name: str) -> None:
    code, stuck, line = FAULTS[name]
    run_cell(lab, "kept = rank + 1")
    began = time.monotonic()
    found = finish_cell(send_cell(lab, code))
    assert isinstance(found.error, Deadlock), found.error
    assert found.ending.case is not None
    assert found.ending.case.stuck == stuck
    assert f"line {line}" in str(found.error)
    assert values(lab, WORKS) == [2.0, 2.0]
    assert values(lab, "kept") == [1, 2]
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("look", ["", "\n    x.item()"])
def test_a_wait_for_the_gpu_is_interrupted(lab: labkit.Lab, look: str) -> None:
    code = "x = torch.ones(1, device=device)\nif rank == 0:\n    dist.all_reduce(x)" + look
    sent = send_cell(lab, code)
    time.sleep(0.4)
    found = finish(sent, Ending("interrupted"), tolerate=True)
    assert isinstance(found.error, Interrupted)
    assert found.ending.still == []
    assert values(lab, WORKS) == [2.0, 2.0]


# -- the lab goes on: these end ranks, so they come last ----------------------------------------


def test_the_group_is_formed_anew(lab: labkit.Lab) -> None:
    for _ in range(3):
        lab.reset()
        assert values(lab, WORKS) == [2.0, 2.0]


def test_one_rank_is_replaced(lab: labkit.Lab) -> None:
    lab.restart(ranks=[1])
    assert values(lab, WORKS) == [2.0, 2.0]


def test_a_rank_that_dies_in_a_collective_is_named_and_replaced(lab: labkit.Lab) -> None:
    code = "import os\nx = torch.ones(1, device=device)\nif rank: os.kill(os.getpid(), 9)\n"
    found = finish_cell(send_cell(lab, code + "dist.all_reduce(x)\nx.item()"))
    assert isinstance(found.error, RankDied), found.error
    lab.restart(ranks=[1])
    assert values(lab, WORKS) == [2.0, 2.0]


def test_the_watchdog_ends_no_process() -> None:
    """A collective that takes longer than its group's time limit is aborted, or named before."""
    with labkit.start(2, timeout=5) as lab:
        sent = send_cell(lab, "x = torch.ones(1, device=device)\nif rank: dist.all_reduce(x)")
        time.sleep(12)
        found = finish_cell(sent)
        assert not isinstance(found.error, RankDied), found.error
        assert found.error is not None
        assert values(lab, WORKS) == [2.0, 2.0]


def test_an_error_of_the_gpu_is_the_cells() -> None:
    with labkit.start(1) as lab:
        code = "x = torch.zeros(3, device=device)\ny = x[torch.tensor([99], device=device)]"
        with pytest.raises(labkit.RankError, match=r"device-side assert|CUDA"):
            run_cell(lab, code)
        lab.restart()
        assert values(lab, WORKS) == [1.0]
