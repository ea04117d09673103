"""Never hang, on NCCL: with two ranks, then with four. What a machine with a GPU runs first.

``make test-gpu GPU=0`` runs it on the fake NCCL (``tests.support.fake_nccl``).
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator

import pytest

import labkit
from labkit import Deadlock, Interrupted, RankDied
from labkit.runtime.diagnosis import Ending
from labkit.runtime.follow import finish
from tests.support.cells import finish_cell, results, run_cell, send_cell
from tests.support.deadlocks import but, everyone, only
from tests.support.observed import SUSPECT, Record, observe

from .ranks import FAKE, needs_gpu, needs_nccl_for, restored, start

pytestmark = pytest.mark.gpu

#: What a learner may call a deadlock after, at most.
SECONDS = 15.0
#: What DDP is given.
IDS = "ids = [device.index] if device.type == 'cuda' else None"
WORKS = "x = torch.ones(1, device=device)\ndist.all_reduce(x)\nx.item()"


#: Cell, ranks that are stuck in a world of n, line (the magic's is 1).
FAULTS = {
    "a rank skips all_reduce": (
        "x = torch.ones(3, device=device)\nif rank: dist.all_reduce(x)",
        but(0),
        3,
    ),
    "and looks at its result": (
        "x = torch.ones(3, device=device)\nif rank:\n    dist.all_reduce(x)\n    print(x)",
        but(0),
        4,
    ),
    "a handle is waited for": (
        "x = torch.ones(3, device=device)\nif rank:\n    work = dist.all_reduce(x, async_op=True)\n"
        "    work.wait()",
        but(0),
        4,
    ),
    "a rank skips a barrier": ("if rank:\n    dist.barrier()", but(0), 3),
    "different collectives": (
        # large: NCCL could complete small ones, each with what the other has sent
        "x = torch.ones(1 << 26, device=device)\n"
        "dist.all_reduce(x) if rank else dist.broadcast(x, 0)\n"
        "dist.all_reduce(x)",
        everyone,
        3,
    ),
    "a receive without a partner": (
        "x = torch.ones(3, device=device)\nif rank: dist.recv(x, 0)",
        but(0),
        3,
    ),
    "both receive first": (
        "x = torch.ones(3, device=device)\ndist.recv(x, rank ^ 1)\ndist.send(x, rank ^ 1)",
        everyone,
        3,
    ),
    "a long send without a partner": (
        "x = torch.ones(1 << 26, device=device)\nif rank: dist.send(x, 0)",
        but(0),
        3,
    ),
    "a batch without a partner": (
        "x, y = (torch.ones(3, device=device) for _ in range(2))\n"
        "ends = [dist.P2POp(dist.isend, x, rank ^ 1), dist.P2POp(dist.irecv, y, rank ^ 1)]\n"
        "if rank: dist.batch_isend_irecv(ends)",
        only(1),
        4,
    ),
    "a step of DDP less": (
        "from torch.nn.parallel import DistributedDataParallel as DDP\n"
        "model = DDP(torch.nn.Linear(3, 1).to(device), device_ids=ids)\n"
        "for _ in range(2 + bool(rank)):\n"
        "    loss = model(torch.ones(2, 3, device=device)).sum()\n"
        "    loss.backward()",
        but(0),
        6,
    ),
    "gloo, beside NCCL": ("x = torch.ones(3)\nif rank: dist.all_reduce(x)", but(0), 3),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, id=f"{n}ranks", marks=[needs_nccl_for(n)]) for n in (2, 4)],
)
def _lab(request: pytest.FixtureRequest) -> Iterator[labkit.Lab]:
    with start(request.param) as started:
        assert {state.backend for state in started.status()} == {"gloo" if FAKE else "nccl"}
        yield started


@pytest.fixture
def lab(_lab: labkit.Lab) -> labkit.Lab:
    """Return the lab, each rank alive and idle."""
    return restored(_lab)


def values(lab: labkit.Lab, code: str) -> list[object]:
    return [ast.literal_eval(shown or "None") for shown in results(run_cell(lab, code))]


def works(lab: labkit.Lab) -> None:
    """Check that the ranks are in one group, and in step."""
    assert values(lab, WORKS) == [float(len(lab))] * len(lab)


# -- what is right goes on being right: try this first ------------------------------------------


def test_tensors_on_the_gpu_and_on_the_cpu_are_added_up(lab: labkit.Lab) -> None:
    n = len(lab)
    works(lab)
    assert values(lab, "x = torch.ones(1)\ndist.all_reduce(x)\nx.item()") == [n] * n
    gather = "o = [None] * world_size\ndist.all_gather_object(o, rank)\no"
    assert values(lab, gather) == [list(range(n))] * n
    code = (
        "own = dist.new_group([0, 1])\nx = torch.ones(1, device=device)\n"
        "if rank < 2: dist.all_reduce(x, group=own)\nx.item()"
    )
    assert values(lab, code) == [2.0, 2.0] + [1.0] * (n - 2)


def test_a_batch_of_messages_is_done(lab: labkit.Lab) -> None:
    code = (
        "x = torch.full((3,), float(rank), device=device)\n"
        "y = torch.empty(3, device=device)\n"
        "ends = [dist.P2POp(dist.isend, x, rank ^ 1), dist.P2POp(dist.irecv, y, rank ^ 1)]\n"
        "for work in dist.batch_isend_irecv(ends): work.wait()\n"
        "y.tolist()"
    )
    assert values(lab, code) == [[float(r ^ 1)] * 3 for r in range(len(lab))]


def test_a_send_outside_a_batch_warns_of_nothing(lab: labkit.Lab) -> None:
    code = (
        "x = torch.ones(3, device=device)\n"
        "dist.recv(x, rank ^ 1) if rank % 2 else dist.send(x, rank ^ 1)"
    )
    assert [outcome.stderr for outcome in run_cell(lab, code)] == [""] * len(lab)


@needs_gpu
def test_a_cell_ends_when_its_work_on_the_gpu_has_ended(lab: labkit.Lab) -> None:
    run_cell(lab, "torch.cuda.synchronize()")
    code = "if rank: torch.cuda._sleep(2_000_000_000)\nx = torch.ones(1, device=device)\n"
    run_cell(lab, code + "dist.all_reduce(x)")
    assert values(lab, "torch.cuda.current_stream(device).query()") == [True] * len(lab)


@needs_gpu
def test_what_is_done_is_not_pending(lab: labkit.Lab) -> None:
    """A batch too, though the recorder never says so of its messages."""
    test_a_batch_of_messages_is_done(lab)
    code = (
        "from labkit.rank.observe import device as D\n"
        "D.uses_device(), D.pending(), D.pending_messages()"
    )
    assert values(lab, code) == [(True, (), ())] * len(lab)


@needs_gpu
def test_what_was_given_is_pending_until_it_is_done(lab: labkit.Lab) -> None:
    code = (
        "from labkit.rank.observe import device as D\n"
        "x = torch.ones(1, device=device)\n"
        "torch.cuda._sleep(2_000_000_000)\n"
        "work = dist.all_reduce(x, async_op=True)\n"
        "work.is_completed(), len(D.pending())"
    )
    assert values(lab, code) == [(False, 1)] * len(lab)


@needs_gpu
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


# -- what blocks forever --------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_survived(lab: labkit.Lab, name: str, record_property: Record) -> None:
    code, stuck, line = FAULTS[name]
    n = len(lab)
    run_cell(lab, "kept = rank + 1")
    began = time.monotonic()
    cell = f"#px In[7]\n{code}\n"
    found = observe(lab, record_property, cell, before=IDS)
    assert type(found.error) is Deadlock, found.error
    assert found.ending.case is not None
    assert set(found.ending.case.stuck) == stuck(n)
    assert f"line {line}" in str(found.error)
    works(lab)
    assert values(lab, "kept") == [r + 1 for r in range(n)]
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("look", ["", "\n    x.item()"])
def test_a_wait_for_the_gpu_is_interrupted(lab: labkit.Lab, look: str) -> None:
    code = "x = torch.ones(1, device=device)\nif rank == 0:\n    dist.all_reduce(x)" + look
    sent = send_cell(lab, code)
    time.sleep(0.4)
    found = finish(sent, Ending("interrupted"), tolerate=True)
    assert isinstance(found.error, Interrupted)
    assert not found.ending.still
    works(lab)


@needs_gpu
def test_two_sources_are_warned_of(lab: labkit.Lab) -> None:
    """NCCL ends them, and what it left in its channels may meet the next call."""
    outcomes = run_cell(lab, "x = torch.ones(2, device=device)\ndist.broadcast(x, rank % 2)")
    assert "the source is rank 0 on rank" in outcomes[0].stderr
    lab.reset()
    works(lab)


@needs_gpu
def test_an_event_that_never_comes_is_named(lab: labkit.Lab) -> None:
    """CUDA spins there, so the rank is on the processor all the while."""
    code = (
        "x = torch.ones(3, device=device)\nevent = torch.cuda.Event()\n"
        "if rank:\n    dist.all_reduce(x)\n    event.record()\n    event.synchronize()"
    )
    found = finish_cell(send_cell(lab, f"#px In[7]\n{code}\n"), suspect=SUSPECT)
    assert type(found.error) is Deadlock, found.error
    assert "line 7" in str(found.error)
    works(lab)


# -- the lab goes on: these end ranks, so they come last ----------------------------------------


def test_the_group_is_formed_anew(lab: labkit.Lab) -> None:
    for _ in range(3):
        lab.reset()
        works(lab)


def test_one_rank_is_replaced(lab: labkit.Lab) -> None:
    lab.restart(ranks=[1])
    works(lab)


def test_a_rank_that_dies_in_a_collective_is_named_and_replaced(lab: labkit.Lab) -> None:
    code = "import os\nx = torch.ones(1, device=device)\nif rank == 1: os.kill(os.getpid(), 9)\n"
    found = finish_cell(send_cell(lab, code + "dist.all_reduce(x)\nx.item()"), suspect=SUSPECT)
    assert isinstance(found.error, RankDied), found.error
    lab.restart(ranks=[1])
    works(lab)


@needs_nccl_for(2)
def test_the_watchdog_ends_no_process_2ranks() -> None:
    """A collective that takes longer than its group's time limit is aborted, or named before."""
    with start(2, timeout=8) as lab:
        sent = send_cell(lab, "x = torch.ones(1, device=device)\nif rank: dist.all_reduce(x)")
        time.sleep(12)
        found = finish_cell(sent)
        assert not isinstance(found.error, RankDied), found.error
        assert found.error is not None
        works(lab)


@needs_gpu
def test_an_error_of_the_gpu_is_the_cells_2ranks() -> None:
    with labkit.start(1) as lab:
        code = "x = torch.zeros(3, device=device)\ny = x[torch.tensor([99], device=device)]"
        with pytest.raises(labkit.RankError, match=r"device-side assert|CUDA"):
            run_cell(lab, code)
        lab.restart()
        works(lab)
