"""Groups that the learner forms by ``env://`` and ``tcp://``, again and again in the same ranks."""

from __future__ import annotations

import pytest

import labkit
from labkit.runtime.diagnosis import Ending
from labkit.runtime.follow import finish, follow
from tests.support.cells import inside, results, run_cell, send_cell
from tests.support.events import HANG_SECONDS

#: What PyTorch's DDP tutorial does, in functions as there.
TUTORIAL = """
import os
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def demo(rank, world_size):
    setup(rank, world_size)
    ddp_model = DDP(nn.Linear(10, 5))
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.001)
    loss = nn.MSELoss()(ddp_model(torch.randn(20, 10)), torch.randn(20, 5))
    loss.backward()
    optimizer.step()
    dist.destroy_process_group()
    return ddp_model.module.weight.grad.sum().item()
"""
FREE_PORT = (
    "import socket\nwith socket.create_server(('127.0.0.1', 0)) as s:\n"
    "    port = s.getsockname()[1]\nport"
)
ADD_UP = "x = torch.ones(1)\ndist.all_reduce(x)\nx.item()"


def tutorial(size: int) -> labkit.Lab:
    lab = labkit.start(size, join=False)
    lab["port"] = int(results(run_cell(lab, FREE_PORT, [0]))[0] or 0)
    run_cell(lab, TUTORIAL)
    return lab


def within(lab: labkit.Lab, code: str) -> list[str | None]:
    """Run a cell that must not hang."""
    sent = send_cell(lab, code)
    ending = follow(sent, timeout=HANG_SECONDS)
    return results(finish(sent, ending).outcomes)


@pytest.mark.parametrize("size", [2, 4])
def test_the_tutorials_cells_run_as_often_as_one_likes(size):
    with tutorial(size) as lab:
        for _ in range(12):
            assert len(set(within(lab, "demo(rank, world_size)"))) == 1
        in_one = "[demo(rank, world_size) for _ in range(12)]"
        assert len(set(within(lab, in_one))) == 1


def test_a_model_that_is_kept_does_not_keep_the_server():
    with tutorial(2) as lab:
        run_cell(lab, "kept = []")
        for _ in range(8):
            within(
                lab,
                "setup(rank, world_size)\nkept.append(DDP(nn.Linear(2, 2)))\n"
                "dist.destroy_process_group()",
            )
        code = "dist.TCPStore('localhost', port, is_master=True, wait_for_workers=False).port"
        assert results(run_cell(lab, code, [0])) == results(run_cell(lab, "port", [0]))


def test_a_rank_that_is_early_does_not_meet_the_group_before():
    with tutorial(2) as lab:
        code = (
            "import time\nfor _ in range(3):\n    setup(rank, world_size)\n"
            f"    {ADD_UP.splitlines()[0]}\n    dist.all_reduce(x)\n"
            "    time.sleep(0.6 if rank == 0 else 0)\n    dist.destroy_process_group()\nx.item()"
        )
        assert within(lab, code) == ["2.0"] * 2


def test_a_group_that_failed_half_way_leaves_no_server_behind():
    with tutorial(2) as lab:
        assert within(lab, f"setup(rank, world_size)\n{ADD_UP}") == ["2.0"] * 2
        with pytest.raises(labkit.RankError, match="ZeroDivisionError"):
            run_cell(lab, "dist.destroy_process_group()\nsetup(rank, world_size)\n1 / 0")
        within(lab, "if dist.is_initialized():\n    dist.destroy_process_group()")
        assert within(lab, f"setup(rank, world_size)\n{ADD_UP}") == ["2.0"] * 2


@pytest.mark.parametrize("join", [True, False])
def test_env_works_as_after_torchrun(join):
    with labkit.start(2, join=join) as lab:
        leave = "if dist.is_initialized():\n    dist.destroy_process_group()\n"
        for _ in range(5):
            assert within(lab, f"{leave}dist.init_process_group('gloo')\n{ADD_UP}") == ["2.0"] * 2
        assert within(lab, "dist.is_torchelastic_launched()") == ["False"] * 2
        lab.restart(ranks=[0])
        within(lab, leave)
        assert within(lab, f"dist.init_process_group('gloo')\n{ADD_UP}") == ["2.0"] * 2
        lab.reset()  # the lab's own group is in nobody's way
        assert within(lab, ADD_UP) == ["2.0"] * 2


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(1000 if rank == 0 else 0)\nsetup(rank, world_size)",  # no server yet
        "time.sleep(1000 if rank == 1 else 0)\nsetup(rank, world_size)",  # nobody at the server
        "port += rank\nsetup(rank, world_size)",  # a server that will never be
        "setup(rank, world_size)\ntime.sleep(1000 if rank == 0 else 0)\n"
        "dist.destroy_process_group()\nsetup(rank, world_size)",  # the server of the group before
    ],
)
def test_the_stop_button_brings_ranks_back_that_search_for_one_another(code):
    with tutorial(2) as lab:
        sent = send_cell(lab, f"import time\n{code}")
        assert follow(sent, timeout=1.2).kind in ("timeout", "deadlock")
        finished = finish(sent, Ending("interrupted"), tolerate=True)
        assert list(finished.ending.still) == []
        assert inside(lab).cluster.busy_ranks() == []
        within(lab, "if dist.is_initialized():\n    dist.destroy_process_group()")
        lab["port"] = int(results(run_cell(lab, FREE_PORT, [0]))[0] or 0)
        assert within(lab, f"setup(rank, world_size)\n{ADD_UP}") == ["2.0"] * 2


def test_a_search_ends_with_the_limit_and_torchs_own_error():
    with tutorial(2) as lab:
        code = """
from datetime import timedelta
import time
if rank == 0:
    time.sleep(4)
else:
    url, limit = f"tcp://localhost:{port}", timedelta(seconds=2)
    try:
        dist.init_process_group("gloo", url, rank=1, world_size=2, timeout=limit)
    except dist.DistNetworkError as error:
        said = str(error)
said if rank else "asleep"
"""
        assert "timed out after 2000ms" in (within(lab, code)[1] or "")
