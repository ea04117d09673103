"""Break cells in every way that learners do: each is named, freed and survived.

The table has one row a fault: what the cell does, which ranks are stuck for certain, at which
line, and what the message says. Every fault runs on two and on four ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psutil
import pytest

import labkit
from labkit import Deadlock, RankDied, RankError
from tests.ranks.test_deadlock_programs import check_and_kept, in_step
from tests.support.cells import finish_cell, inside, restored, results, run_cell, send_cell
from tests.support.deadlocks import Program, but, everyone, only


def Fault(
    name: str,
    code: str,
    says: tuple[str, ...],
    stuck: Callable[[int], set[int]] | None = None,
    line: int | None = None,
    error: type[RankError] | tuple[type[RankError], ...] = Deadlock,
    **more: object,
) -> Program:
    """Make one way to break a cell: the code begins in line 2, below the line of the magic."""
    errors = error if isinstance(error, tuple) else (error,)
    return Program(name, code, stuck, line, says, errors=errors, **more)  # type: ignore[arg-type]


but_0 = but(0)


def skipped(
    name: str,
    call: str,
    *says: str,
    by: int = 0,
    calls: Sequence[int] | None = None,
    stuck: Callable[[int], set[int]] | None = but_0,
    before: str = "",
) -> Program:
    """Make a cell in which one rank leaves a call out, or in which only some make it."""
    condition = f"rank in {calls}" if calls else f"rank != {by}"
    lines = [*before.splitlines(), f"if {condition}:", f"    {call}"]
    return Fault(name, "\n".join(lines), (CONDITION, *says), stuck, len(lines) + 1)


CONDITION = r"Cause: The call stands under a condition"
FEWER = r"made this call too, but fewer times"
STEPS = r"made fewer training steps"
ORDER = r"different collectives"
SEND_FIRST = r"sends before it receives"
MISSING = r"is missing \(or goes to another rank\)"

FAULTS = [
    skipped(
        "a rank skips all_reduce",
        "dist.all_reduce(x)", r"all_reduce \(float32 \[3\], collective \d+\)",
        "rank 0, which has ended", before="x = torch.ones(3)",
    ),
    Fault(
        "a rank names another group on the same line",
        "own = dist.new_group([0])\n"
        "dist.all_reduce(torch.ones(1), group=own if rank == 0 else None)",
        ("rank 0, which has ended", "Rank 0 made this call in another group"), but(0), 3,
    ),
    Fault(
        "a rank returns early",
        "def step():\n    if rank == 1:\n        return\n"
        "    dist.all_reduce(torch.ones(1))\nstep()",
        (CONDITION, "rank 1, which has ended its cell"), but(1), 5,
    ),
    skipped(
        "a rank skips barrier",
        "dist.barrier()", r"rank 0 waits in barrier \(collective", calls=[0], stuck=only(0),
    ),
    skipped(
        "the source skips broadcast",
        "dist.broadcast(torch.ones(2, 3), 0)",
        r"broadcast \(float32 \[2, 3\], collective \d+, root 0\)",
    ),
    skipped(
        "a receiver skips broadcast",
        "dist.broadcast(torch.ones(2), 0)", "for rank 1", by=1, stuck=None,
    ),
    skipped("the destination skips gather", "dist.gather(torch.ones(1), None, 0)", "for rank 0"),
    Fault(
        "a rank skips gather",
        "if rank != 1:\n"
        "    out = [torch.ones(1) for _ in range(world_size)] if rank == 0 else None\n"
        "    dist.gather(torch.ones(1), out, 0)",
        (CONDITION, "for rank 1"), None, 4,
    ),
    skipped("the source skips scatter", "dist.scatter(torch.ones(1), None, 0)", "scatter"),
    skipped(
        "a rank skips reduce",
        "dist.reduce(torch.ones(1), 0)", r"reduce \(float32 \[1\]", by=1, stuck=None,
    ),
    skipped(
        "a rank skips all_gather",
        "dist.all_gather(out, torch.ones(1))", r"all_gather \(float32 \[1\]",
        before="out = [torch.ones(1) for _ in range(world_size)]",
    ),
    skipped(
        "a rank skips reduce_scatter",
        "dist.reduce_scatter_tensor(torch.ones(1), torch.ones(world_size))",
        "reduce_scatter_tensor",
    ),
    skipped(
        "a rank skips all_to_all",
        "dist.all_to_all_single(torch.ones(world_size), torch.ones(world_size))",
        "all_to_all",
    ),
    skipped(
        "a rank skips all_gather_object",
        "dist.all_gather_object(out, rank)", "of all_gather_object",
        before="out = [None] * world_size",
    ),
    skipped(
        "the source skips broadcast_object_list",
        "dist.broadcast_object_list([None], 0)",
        "of broadcast_object_list",
    ),
    Fault(
        "another collective on one rank",
        "x = torch.ones(4)\nif rank == 1:\n    dist.broadcast(x, 0)\nelse:\n    dist.all_reduce(x)",
        (ORDER, "all_reduce", "broadcast"), None,
    ),
    Fault(
        "another order on one rank",
        "x = torch.ones(4)\nif rank == 1:\n    dist.barrier()\n    dist.all_reduce(x)\nelse:\n"
        "    dist.all_reduce(x)\n    dist.barrier()",
        (ORDER, "line 4", "line 7"), None,
    ),
    Fault(
        "another shape on one rank",
        "dist.all_reduce(torch.ones(100 if rank == 1 else 3))",
        (r"different shapes|shapes or types probably differ", r"float32 \[100\]"),
        error=(Deadlock, RankDied),
    ),
    Fault(
        "another type on one rank",
        "dist.all_reduce(torch.ones(3, dtype=torch.float64 if rank == 1 else torch.float32))",
        (r"different types of tensors|shapes or types probably differ", "float64"),
        error=(Deadlock, RankDied),
    ),
    Fault(
        "two sources",
        "dist.broadcast(torch.ones(2), rank % 2)",
        ("different ranks as the source of broadcast", "root 0", "root 1"), None, 2,
    ),
    Fault(
        "a loop is shorter on one rank",
        "x = torch.ones(2)\nfor batch in range(3 if rank == 0 else 5):\n    dist.all_reduce(x)",
        (FEWER, "Rank 0 made"), but(0), 4,
    ),
    Fault(
        "a rank has fewer batches for DDP",
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))\n"
        "for batch in range(2 if rank == 1 else 4):\n    model(torch.ones(1, 4)).sum().backward()",
        (STEPS, "of backward"), but(1), 4,
    ),
    Fault(
        "a rank does not wrap its model",
        "model = torch.nn.Linear(4, 2)\nif rank == 0:\n"
        "    model = torch.nn.parallel.DistributedDataParallel(model)",
        ("of DistributedDataParallel", "rank 0 waits"), only(0), 4,
    ),
    Fault(
        "nobody receives",
        "if rank == 0:\n    dist.send(torch.ones(1), 1)", (MISSING, "send to rank 1"), only(0), 3,
    ),
    Fault(
        "nobody sends",
        "x = torch.ones(1)\nif rank == 1:\n    dist.recv(x, 0)", (MISSING, "recv from rank 0"),
        only(1), 4,
    ),
    Fault(
        "nobody sends to one that takes from any",
        "x = torch.ones(1)\nif rank == 1:\n    dist.recv(x)", ("recv from any rank",), only(1), 4,
    ),
    Fault(
        "both send first",
        "x = torch.ones(1)\npeer = rank ^ 1\ndist.send(x, peer)\ndist.recv(x, peer)",
        (SEND_FIRST, "wait for one another"), everyone, 4,
    ),
    Fault(
        "both receive first",
        "x = torch.ones(1)\npeer = rank ^ 1\ndist.recv(x, peer)\ndist.send(x, peer)",
        ("waits to receive before it sends",), everyone, 4,
    ),
    Fault(
        "a ring of sends",
        "x = torch.ones(1)\ndist.send(x, (rank + 1) % world_size)\n"
        "dist.recv(x, (rank - 1) % world_size)",
        (SEND_FIRST,), everyone, 3,
    ),
    Fault(
        "isend is waited for before the receive",
        "x = torch.ones(1)\nwork = dist.isend(x, rank ^ 1)\nwork.wait()\ndist.recv(x, rank ^ 1)",
        (SEND_FIRST,), everyone, 4,
    ),
    Fault(
        "the tags differ",
        "x = torch.ones(1)\nif rank == 0:\n    dist.send(x, 1, tag=5)\nif rank == 1:\n"
        "    dist.recv(x, 0, tag=6)",
        ("The tags differ: rank 0 waits in send with tag 5, rank 1 in recv with tag 6",),
        only(0, 1),
    ),
    Fault(
        "one send too many",
        "x = torch.ones(1)\nif rank == 0:\n    for _ in range(3):\n        dist.send(x, 1)\n"
        "elif rank == 1:\n    for _ in range(2):\n        dist.recv(x, 0)",
        (MISSING,), only(0), 5,
    ),
    Fault(
        "a collective here, a receive there",
        "x = torch.ones(1)\nif rank == 0:\n    dist.recv(x, 1)\nelse:\n    dist.all_reduce(x)",
        ("Some ranks wait in a collective, others for a message",), everyone,
    ),
    Fault(
        "an asynchronous all_reduce that one rank never starts",
        "x = torch.ones(1)\nwork = dist.all_reduce(x, async_op=True) if rank else None\n"
        "if work:\n    work.wait()",
        (CONDITION, "all_reduce"), but(0), 5,
    ),
    skipped(
        "a rank skips monitored_barrier",
        "dist.monitored_barrier()", "monitored_barrier", by=1, stuck=but(1),
    ),
    skipped(
        "a member skips its group's all_reduce",
        "dist.all_reduce(torch.ones(1), group=pair)", "for rank 1",
        before="pair = dist.new_group([0, 1])", calls=[0], stuck=only(0),
    ),
    Fault(
        "each rank makes only its own group",
        "own = dist.new_group([0, 1] if rank == 0 else [rank])",
        (
            r"Cause: Rank 0 made the group of ranks 0–1 where rank 1 made that of rank 1: every",
            r"has to call new_group for every group, in the same order",
        ),
        only(0), 2,
    ),
    Fault(
        "two groups in different order",
        "a = dist.new_group([0, 1])\nb = dist.new_group([0, 1])\nx = torch.ones(1)\n"
        "if rank < 2:\n    for g in (a, b) if rank == 0 else (b, a):\n"
        "        dist.all_reduce(x, group=g)",
        ("collectives of different groups", r"in group \d+ of ranks 0–1"), only(0, 1), 7,
    ),
    Fault(
        "a cell for some ranks calls on all",
        "dist.barrier()", (r"The cell ran without rank\w* ", "not asked to run the cell"), only(0),
        2, ranks=lambda n: [0],
    ),
    skipped(
        "a functional collective",
        "y = funcol.all_reduce(torch.ones(2), 'sum', dist.group.WORLD) + 1", "all_reduce",
        before="import torch.distributed._functional_collectives as funcol",
    ),
    Fault(
        "the error is caught and the next call made",
        "import contextlib\nif rank:\n    with contextlib.suppress(RuntimeError):\n"
        "        dist.all_reduce(torch.ones(1))\n    dist.barrier()",
        (CONDITION,), but(0), 5,
    ),
    Fault(
        "an error on one rank before the call",
        "if rank == 1:\n    raise ValueError('boom')\ndist.barrier()",
        ("^rank 1: ValueError: boom", "waited in In\\[7\\], line 4 for rank 1"), but(1), 4,
        error=RankError,
    ),
    Fault(
        "an error on one rank in the middle of a loop",
        "x = torch.ones(1)\nfor i in range(9):\n    dist.all_reduce(x)\n"
        "    if rank == 0 and i == 4:\n        1 / 0",
        ("^rank 0: ZeroDivisionError", "waited in In\\[7\\], line 4 for rank 0"), but(0), 4,
        error=RankError,
    ),
    Fault(
        "sys.exit on one rank",
        "import sys\nif rank == 0:\n    sys.exit(3)\ndist.all_reduce(torch.ones(1))",
        ("^rank 0: SystemExit: sys.exit\\(3\\) ended the cell in In\\[7\\], line 4",), but(0), 5,
        error=RankError,
    ),
    Fault(
        "kill -9",
        "import os, signal\nif rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "dist.barrier()",
        (r"^rank 1 ended with signal 9 \(SIGKILL\)", r"lab.restart\(ranks=\[1\]\) replaces it"),
        error=RankDied, dead=1,
    ),
    Fault(
        "a segmentation fault",
        "import ctypes\nif rank == 0:\n    ctypes.string_at(0)\ndist.barrier()",
        (
            r"^rank 0 ended with signal 11 \(SIGSEGV\)",
            r"bad memory access in C or C\+\+ code\. "
            r"Rank 0 crashed in ctypes\.string_at, In\[7\], line 4\.",
        ),
        error=RankDied, dead=0,
    ),
    Fault(
        "abort in C++",
        "import os\nif rank == 1:\n    os.abort()\ndist.all_reduce(torch.ones(1))",
        (r"^rank 1 ended with signal 6 \(SIGABRT\)", r"Rank 1 crashed in In\[7\], line 4\."),
        error=RankDied, dead=1,
    ),
    Fault(
        "os._exit",
        "import os\nif rank == 1:\n    os._exit(3)\ndist.all_reduce(torch.ones(1))",
        (r"^rank 1 ended with exit code 3",), error=RankDied, dead=1,
    ),
]  # fmt: skip


@pytest.fixture(scope="module", params=[2, 4])
def module_lab(request):
    with labkit.start(request.param) as started:
        yield started


@pytest.fixture
def lab(module_lab):
    return restored(module_lab)


@pytest.mark.slow
@pytest.mark.usefixtures("alarmed")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_a_fault_is_named_and_survived(lab, fault):
    warm = psutil.Process(inside(lab).cluster.launcher.warm.process.pid)
    children = len(warm.children())
    check_and_kept(lab, fault)
    in_step(lab)
    after = warm.children()
    assert len(after) == children
    assert not [p.pid for p in after if p.status() == psutil.STATUS_ZOMBIE]


def test_each_rank_makes_only_its_own_pair(lab):
    """Both pairs have one name, under which they look for each other: what comes of it is chance,
    but it is named, nobody stays behind, and the lab works afterwards."""
    if len(lab) < 4:
        pytest.skip("needs two pairs")
    code = (
        "#px In[7]\nkept = rank\n"
        "own = dist.new_group([0, 1] if rank < 2 else [2, 3])\n"
        "dist.all_reduce(torch.ones(1), group=own)"
    )
    for _ in range(4):
        finished = finish_cell(send_cell(lab, code))
        if finished.error is not None:
            assert "every rank has to call new_group for every group" in str(finished.error)
        assert not finished.ending.still
        in_step(lab)
        assert results(run_cell(lab, "kept")) == ["0", "1", "2", "3"]
